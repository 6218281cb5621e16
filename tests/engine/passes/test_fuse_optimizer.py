"""fuse_optimizer: what is fused, what is left alone, and that training gives the same numbers."""

# SPDX-License-Identifier: Apache-2.0
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.log import NOTICE, logger
from argosy.engine.ops.collectives import wait
from argosy.engine.passes.base import Pass, Report, rewrite
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.order_updates import OrderUpdates
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.fluid.param_attr import ParamAttr
from argosy.static.compiled_program import configure
from tests.jobs.scripts import equality_small
from tests.ranks import ForkServer

SIZES = (8, 8, 2)


def layers(x: Any, sizes: tuple[int, ...] = SIZES) -> Any:
    for size in sizes:
        x = paddle.static.nn.fc(x, size)
    return x


def three_layers() -> Any:
    return layers(paddle.static.data("x", [None, 4], "float32")).mean()


def fuse(*passes: Pass, program: Program | None = None) -> Report:
    """What the last pass reports; what it says is logged, and the fixture `said` has it."""
    return replace(rewrite(program or default_main_program(), passes or [FuseOptimizer()])[-1], notices=())


def fused() -> list[fx.Node]:
    return [
        n
        for n in default_main_program().graph.nodes
        if "fused" in str(n.target) and n.meta["role"] == "optimize"
    ]


def parameters(node: fx.Node) -> list[str]:
    named = default_main_program().names_of_nodes()
    return [named[one] for one in node.args[0]]  # type: ignore[union-attr,misc]


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is logged by default."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(NOTICE)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


# --- what is fused ------------------------------------------------------------------------------------

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **how: paddle.optimizer.SGD(how.pop("learning_rate", 0.1), **how),
    "momentum": lambda **how: paddle.optimizer.Momentum(how.pop("learning_rate", 0.1), 0.9, **how),
    "nesterov": lambda **how: paddle.optimizer.Momentum(
        how.pop("learning_rate", 0.1), 0.9, use_nesterov=True, **how
    ),
    "adam": lambda **how: paddle.optimizer.Adam(how.pop("learning_rate", 0.1), epsilon=1e-3, **how),
    "adamw": lambda **how: paddle.optimizer.AdamW(how.pop("learning_rate", 0.1), epsilon=1e-3, **how),
    "lars_momentum": lambda **how: paddle.optimizer.LarsMomentum(
        how.pop("learning_rate", 0.1), lars_coeff=0.1, exclude_from_weight_decay=[".b_"], **how
    ),
    "lamb": lambda **how: paddle.optimizer.Lamb(
        how.pop("learning_rate", 0.1), exclude_from_weight_decay_fn=lambda p: ".b_" in p.name, **how
    ),
}


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "lars_momentum", "lamb"])
def test_all_updates_become_one_node_and_paddles_line_says_so(name: str, said: list[str]) -> None:
    OPTIMIZERS[name]().minimize(three_layers())
    source = next(n for n in default_main_program().graph.nodes if n.name == name).meta["source"]
    assert fuse() == Report(6, "6 of 6 updates fused into 1")
    assert said == [
        f"Find {name} operators : 6, and 6 for dense gradients. To make the speed faster, those optimization are "
        "fused during training."
    ]
    (node,) = fused()
    assert node.name == f"fused_{name}"
    assert node.meta["role"] == "optimize"
    assert node.meta["source"] == source
    assert node is next(reversed(default_main_program().graph.nodes))
    assert parameters(node) == [f"fc_{i}.{kind}_0" for i in range(3) for kind in "wb"]


def test_a_second_run_changes_nothing() -> None:
    OPTIMIZERS["momentum"]().minimize(three_layers())
    fuse()
    once = str(default_main_program())
    assert fuse() == Report(0, "no update that can be fused")
    assert str(default_main_program()) == once


def test_a_single_update_is_fused_alone_so_that_it_rounds_as_the_others(said: list[str]) -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    OPTIMIZERS["momentum"]().minimize(paddle.static.nn.fc(x, 2, bias_attr=False).mean())
    assert fuse() == Report(1, "1 of 1 updates fused into 1; 1 without a compatible update, alone")
    (node,) = fused()
    tensors: Any = node.args[:3]
    assert list(map(len, tensors)) == [1, 1, 1]
    assert said == []


def test_without_an_optimizer_there_is_nothing_to_do() -> None:
    three_layers()
    assert fuse() == Report(0, "no update that can be fused")


def test_sparse_tables_keep_their_own_update_and_are_counted(said: list[str]) -> None:
    ids = paddle.static.data("ids", [None, 3], "int64")
    rows = paddle.static.nn.embedding(ids, [10, 4], is_sparse=True)
    OPTIMIZERS["adam"]().minimize(layers(rows).mean())
    program = default_main_program()
    configure(program, paddle.static.BuildStrategy())
    tables = [p.node for p in program.all_parameters() if p.is_sparse]
    assert fuse().text == "6 of 7 updates fused into 1; skipped: 1 of sparse tables"
    assert said[0].startswith("Find adam operators : 7, and 6 for dense gradients. ")
    left = [n for n in program.graph.nodes if n.target is torch.ops.argosy.adam.default]
    assert [n.args[0] for n in left] == tables


def test_rates_and_decays_of_single_parameters_are_kept() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    fast = ParamAttr(learning_rate=3.0, regularizer=paddle.regularizer.L2Decay(0.5))
    x = paddle.static.nn.fc(paddle.static.nn.fc(x, 8), 2, weight_attr=fast)
    OPTIMIZERS["momentum"](weight_decay=0.25).minimize(x.mean())
    assert fuse().changed == 4
    (node,) = fused()
    assert node.args[4] == [1.0, 1.0, 3.0, 1.0]
    assert node.args[7] == [0.25, 0.25, 0.5, 0.25]


def test_what_cannot_be_a_list_divides_the_updates(said: list[str]) -> None:
    """Two optimizers: other rates, another mu, another op."""
    x = paddle.static.data("x", [None, 4], "float32")
    for make in (OPTIMIZERS["momentum"], OPTIMIZERS["nesterov"], OPTIMIZERS["sgd"]):
        make().minimize(layers(x, (4, 2)).mean())
    assert fuse() == Report(12, "12 of 12 updates fused into 3")
    assert [n.name for n in fused()] == ["fused_momentum", "fused_momentum_1", "fused_sgd"]
    assert [line.split(",")[0] for line in said if line.startswith("Find")] == [
        "Find momentum operators : 8",
        "Find sgd operators : 4",
    ]


def test_what_reads_an_updated_parameter_stays_behind_the_update() -> None:
    optimizer, loss = OPTIMIZERS["sgd"](), three_layers()
    program = default_main_program()
    pairs = optimizer.backward(loss)
    optimizer.apply_gradients(pairs[:3])
    with program.recorder.in_role("optimize"):
        torch.ops.aten.clone.default(program.var("fc_0.b_0"))
    optimizer.apply_gradients(pairs[3:])
    report = fuse()
    assert report == Report(6, "6 of 6 updates fused into 2; clone is between sgd and sgd_3")
    assert [len(parameters(n)) for n in fused()] == [3, 3]
    assert [n.name for n in program.graph.nodes if n.meta["role"] == "optimize"] == [
        "fused_sgd",
        "clone",
        "fused_sgd_1",
    ]


def test_a_parameter_that_is_updated_twice_is_in_two_nodes() -> None:
    """One optimizer, two losses: the second backward reads what the first update wrote."""
    x, optimizer = paddle.static.data("x", [None, 4], "float32"), OPTIMIZERS["momentum"]()
    out = layers(x)
    optimizer.minimize(out.mean())
    optimizer.minimize((out * out).mean())
    assert fuse().changed == 12
    assert [sorted(parameters(n)) for n in fused()] == [
        sorted(f"fc_{i}.{k}_0" for i in range(3) for k in "bw")
    ] * 2


# --- together with other passes -----------------------------------------------------------------------


def planned(mb: float = 0, **switches: Any) -> list[Pass]:
    """Minimize three layers for two ranks, with overlap; fuse_optimizer where it belongs."""
    strategy = fleet.DistributedStrategy()
    strategy.sync_nccl_allreduce, strategy.fuse_grad_size_in_MB = False, mb
    optimizer = switches.pop("optimizer", OPTIMIZERS["momentum"]())
    for name, value in switches.items():
        setattr(strategy, name, value)
    loss = three_layers()
    _, pairs = optimizer.minimize(loss)
    passes = [
        p for p in training_passes(strategy, loss.program, pairs, ranks=2) if not isinstance(p, FuseOptimizer)
    ]
    assert passes[-1] == OrderUpdates()
    return [*passes[:-1], FuseOptimizer()]


def test_each_group_of_gradients_has_a_node_of_its_own_which_runs_when_it_has_arrived() -> None:
    assert fuse(*planned()) == Report(6, "6 of 6 updates fused into 3")
    assert fuse(OrderUpdates()).text == "2 of 3 updates moved; 2 run before the last collective has completed"
    assert [parameters(n) for n in fused()] == [[f"fc_{i}.w_0", f"fc_{i}.b_0"] for i in (2, 1, 0)]
    nodes = default_main_program().graph.nodes
    tail = [str(n.target).split(".")[1] for n in nodes if n in fused() or n.target is wait]
    assert tail == ["wait", "fused_momentum"] * 3


def test_clipping_each_gradient_keeps_the_groups_apart() -> None:
    clip = paddle.nn.ClipGradByNorm(1.0)
    assert fuse(*planned(optimizer=OPTIMIZERS["sgd"](grad_clip=clip))).text == "6 of 6 updates fused into 3"


def test_the_global_norm_needs_all_gradients_so_all_are_updated_at_once() -> None:
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    assert fuse(*planned(optimizer=OPTIMIZERS["sgd"](grad_clip=clip))).text == "6 of 6 updates fused into 1"
    assert fuse(OrderUpdates()).changed == 0


def test_gradients_that_travel_one_by_one_are_updated_at_once() -> None:
    assert fuse(*planned(fuse_all_reduce_ops=False)).text == "6 of 6 updates fused into 1"


def test_the_convolution_weights_alone_lie_in_channels_last(said: list[str]) -> None:
    """Another parameter of the same shape, updated by the same node, keeps its order."""
    x = paddle.static.data("x", [None, 4, 8, 8], "float32")
    other = paddle.static.create_parameter([4, 4, 3, 3], "float32", name="other")
    out = paddle.static.nn.conv2d(x, 4, 3, bias_attr=False, param_attr=ParamAttr(name="filter"))
    OPTIMIZERS["momentum"]().minimize(out.mean() + (other.flatten() ** 2).sum())
    assert fuse().changed == 2
    scope = Scope()
    with scope_guard(scope):
        exe = paddle.static.Executor()
        exe.run(default_startup_program())
        exe.run(default_main_program(), feed={"x": np.ones((2, 4, 8, 8), "float32")})
    last = {n: scope.get(n).is_contiguous(memory_format=torch.channels_last) for n in scope.values_of()}
    assert {name for name, is_last in last.items() if is_last and scope.get(name).ndim == 4} == {
        "filter",
        "filter_velocity_0",
    }


def test_a_fused_program_is_printed_shortly_copied_saved_and_loaded() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    loss = layers(x, (4,) * 5).mean()
    OPTIMIZERS["adam"](weight_decay=0.1).minimize(loss)
    fuse()
    program, startup = default_main_program(), default_startup_program()
    assert "fused_adam([fc_0.w_0, …, fc_4.b_0] (10), " in str(program)
    assert "fused" not in str(program.clone(for_test=True))
    results = []
    for one in (program, program.clone(), from_dict(to_dict(program))):
        with scope_guard(Scope()):
            exe = paddle.static.Executor()
            torch.manual_seed(3)
            exe.run(startup)
            feed = {"x": np.ones((2, 4), "float32")}
            wanted = [loss.name, "fc_0.w_0@GRAD", "fc_0.w_0"]
            results.append([exe.run(one, feed=feed, fetch_list=wanted) for _ in range(2)])
    np.testing.assert_equal(results[1], results[0])
    np.testing.assert_equal(results[2], results[0])


# --- the same numbers ---------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Callable[[], Any]]] = {
    "plain": {},
    "global norm and l1": {
        "grad_clip": lambda: paddle.nn.ClipGradByGlobalNorm(0.1),
        "weight_decay": lambda: paddle.regularizer.L1Decay(0.01),
    },
    "norm and scheduler": {
        "grad_clip": lambda: paddle.nn.ClipGradByNorm(0.05),
        "learning_rate": lambda: paddle.optimizer.lr.StepDecay(0.2, 2, 0.5),
    },
    "value and l2": {"grad_clip": lambda: paddle.nn.ClipGradByValue(0.02), "weight_decay": lambda: 0.01},
}


def trained(make: Callable[[], Any], fuses: bool) -> dict[str, Any]:
    """All variables of the scope after five steps; one layer has a rate and a decay of its own."""
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        x = paddle.static.data("x", [4, 3, 8, 8], "float32")
        h = paddle.static.nn.conv2d(x, 5, 3, act="relu").flatten(1)
        attr = ParamAttr(learning_rate=0.5, regularizer=paddle.regularizer.L2Decay(0.05))
        h = torch.tanh(paddle.static.nn.fc(h, 9, weight_attr=attr))
        loss = (paddle.static.nn.fc(h, 3) ** 2).mean()
        optimizer = make()
        optimizer.minimize(loss)
        if fuses:
            assert fuse(program=default_main_program()).changed == 6
        exe = paddle.static.Executor()
        torch.manual_seed(5)
        exe.run(default_startup_program())
        draw = np.random.default_rng(0)
        for _ in range(5):
            exe.run(default_main_program(), feed={"x": draw.standard_normal((4, 3, 8, 8)).astype("float32")})
            if isinstance(optimizer.learning_rate, paddle.optimizer.lr.LRScheduler):
                optimizer.learning_rate.step()
        scope = paddle.static.global_scope()
        return {name: value.numpy().copy() for name, value in scope.values_of().items()}


def cases() -> Iterator[Any]:
    """The fast suite has every optimizer without settings, and two optimizers with all of them."""
    for name in OPTIMIZERS:
        for settings, kernels in [
            *((settings, "own kernels") for settings in SETTINGS),
            ("value and l2", "torch's"),
        ]:
            is_fast = settings == "plain" or name in ("momentum", "adam")
            yield pytest.param(name, settings, kernels, marks=[] if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(("name", "settings", "kernels"), list(cases()), indirect=["kernels"])
def test_five_steps_fused_are_those_unfused(name: str, settings: str, kernels: str) -> None:
    """Within a rounding: a tensor's last elements may differ in their last bit, and what follows from them."""
    how = {} if name in ("adamw", "lamb") and "weight_decay" in SETTINGS[settings] else SETTINGS[settings]

    def make() -> Any:
        return OPTIMIZERS[name](**{key: value() for key, value in how.items()})

    plain, fused = trained(make, fuses=False), trained(make, fuses=True)
    assert plain.keys() == fused.keys()
    for variable, value in plain.items():
        np.testing.assert_allclose(fused[variable], value, rtol=1e-5, atol=1e-6, err_msg=variable)


# --- two ranks ----------------------------------------------------------------------------------------

CASES = {2: ("convolution",), 4: ("adam", "global norm")}


def train_fused_and_not() -> None:
    """On four ranks in blocks of two the sums are hierarchical."""
    fleet.init(is_collective=True)
    place = fleet.worker_index(), fleet.worker_num()
    for case in CASES[place[1]]:
        results = []
        for fuses in (False, True):
            strategy = fleet.DistributedStrategy()
            strategy.sync_nccl_allreduce, strategy.fuse_grad_size_in_MB = False, 0
            strategy.nccl_comm_num = 2
            strategy.build_strategy.fuse_all_optimizer_ops = fuses
            if place[1] > 2:
                strategy.use_hierarchical_allreduce, strategy.hierarchical_allreduce_inter_nranks = True, 2
            fleet.init(is_collective=True, strategy=strategy)

            def minimize(optimizer: Any, loss: Any, fuses: bool = fuses, **how: Any) -> Any:
                minimized = equality_small.with_fleet(optimizer, loss, **how)
                if fuses:
                    rewrite(loss.program, [FuseOptimizer(), OrderUpdates()])
                is_fused = any(
                    "fused_" in n.name for n in loss.program.graph.nodes if n.meta["role"] == "optimize"
                )
                assert is_fused == fuses
                return minimized

            results.append(equality_small.train(case, minimize, *place))
        for name, value in results[0].items():
            np.testing.assert_allclose(
                results[1][name], value, rtol=1e-5, atol=1e-6, err_msg=f"{case}: {name}"
            )


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_train_alike_with_fused_updates_and_overlap(ranks: ForkServer, size: int) -> None:
    ranks.check(size, train_fused_and_not)
