"""Reduce mode on real ranks: the parameters of the AllReduce run, one owner for each, checkpoints of the whole."""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_checks import is_reduce_mode, warn_ignored
from argosy.engine import collective
from argosy.engine.errors import ConfigError, FetchError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Parameter
from argosy.engine.passes.reduce_to_owner import owners
from argosy.static import BuildStrategy
from tests.jobs.scripts import equality_small
from tests.ranks import ForkServer

BATCH, STEPS = 8, 5
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.5)),
    "momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9, weight_decay=0.01),
    "adam": lambda: paddle.optimizer.Adam(0.01, epsilon=1e-4),
}
FUSED = {"fuses": True}
SPECIAL = ("gradient that is read again", "views of one gradient", "expanded gradients", "two optimizers")
OVERLAPPED = {"sync_nccl_allreduce": False, "nccl_comm_num": 2}


# --- on the ranks -------------------------------------------------------------------------------------


def strategy(reduces: bool, fuses: bool = False, **switches: Any) -> fleet.DistributedStrategy:
    options = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(options, name, value)
    if reduces:
        options.build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
        options.build_strategy.fuse_broadcast_ops = fuses
    return options


class Run:
    """A training with programs and a scope of its own."""

    def __init__(self, strategy: fleet.DistributedStrategy, optimizer: str = "momentum") -> None:
        self.main, self.startup = paddle.static.Program(), paddle.static.Program()
        self.scope = paddle.static.Scope()
        self.startup.random_seed = 7
        with paddle.static.program_guard(self.main, self.startup), names.guard():
            self.loss = build()
            self.optimizer = fleet.fleet.distributed_optimizer(OPTIMIZERS[optimizer](), strategy)
            self.updates, _ = self.optimizer.minimize(self.loss)
        self.exe = paddle.static.Executor()
        self.exe.run(self.startup, scope=self.scope)

    def train(self, first: int = 0, last: int = STEPS) -> "Run":
        rank, size = collective.world().rank, collective.world().size
        for step in range(first, last):
            mine = {name: np.split(value, size)[rank] for name, value in batch(step).items()}
            self.exe.run(self.main, mine, [self.loss], scope=self.scope)
        return self

    def values(self, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, torch.Tensor]:
        return {n: self.scope.get(n).clone() for n in self.main.persistables() if wanted(n)}

    def parameters(self) -> dict[str, torch.Tensor]:
        return self.values(lambda name: isinstance(self.main.var(name), Parameter))

    def state(self) -> dict[str, torch.Tensor]:
        """What only the owner has updated."""
        known = self.parameters()
        return self.values(lambda name: name in owners(self.main) and name not in known)


def build() -> Any:
    """A convolution (channels_last), a batch norm, two layers, and a table whose gradient is gathered by rows."""
    share = BATCH // collective.world().size
    x, y = paddle.static.data("x", [share, 3, 6, 6]), paddle.static.data("y", [share, 1], "int64")
    h = paddle.static.nn.conv2d(x, 4, 3, bias_attr=False)
    h = paddle.static.nn.fc(paddle.static.nn.batch_norm(h, act="relu"), 6, activation="tanh")
    rows = paddle.static.nn.embedding(y, [5, 3], is_sparse=True).reshape([-1, 3])
    return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(paddle.concat([h, rows], 1), 3), y)


def batch(step: int) -> dict[str, np.ndarray[Any, Any]]:
    drawn = np.random.default_rng(step)
    return {
        "x": drawn.standard_normal((BATCH, 3, 6, 6)).astype("float32"),
        "y": drawn.integers(0, 3, (BATCH, 1)),
    }


def assert_equal(actual: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], atol: float = 0.0) -> None:
    assert actual.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=atol, err_msg=name)


def trains_as_with_all_reduce() -> None:
    fleet.init(is_collective=True)
    for optimizer, *cases in json.loads(os.environ["REDUCE_CASES"]):
        wanted = Run(strategy(False), optimizer).train()
        for switches in cases:
            compare(wanted, Run(strategy(True, **switches), optimizer))


def compare(wanted: Run, run: Run) -> None:
    """Train in Reduce mode and look at what the other mode has made, and at who has touched what."""
    rank, size = collective.world().rank, collective.world().size
    atol = 0.0 if size == 2 else 1e-6
    begin = run.state()
    run.train()
    assert_equal(run.parameters(), wanted.parameters(), atol)
    known, whole = owners(run.main), wanted.values()
    assert set(known.values()) == set(range(size))
    assert "embedding_0.w_0" not in known
    for name, value in run.state().items():
        is_mine = known[name] == rank
        assert torch.equal(value, begin[name]) != is_mine, f"{name} of rank {known[name]}"
        if is_mine:
            torch.testing.assert_close(value, whole[name], rtol=0, atol=atol)
    mine = [p for p in run.parameters() if known.get(p, rank) == rank]
    assert len(run.updates) == len(mine), "the table is updated everywhere"


def saves_and_resumes() -> None:
    fleet.init(is_collective=True)
    rank, folder = collective.world().rank, Path(os.environ["REDUCE_FOLDER"])
    modes = {"reduce": Run(strategy(True, fuses=True), "adam"), "all": Run(strategy(False), "adam")}
    for mode, run in modes.items():
        run.train(last=3)
        fleet.Checkpoint(folder / mode).save(3, run.exe, run.main, scope=run.scope)
        with paddle.static.scope_guard(run.scope):
            fleet.save_persistables(run.exe, str(folder / f"{mode}-vars"), run.main)
    parts = [folder / mode / "step-00000003" / f"rank-{rank}-of-2.safetensors" for mode in modes]
    reduced, plain = map(safetensors.torch.load_file, parts)
    assert_equal(reduced, plain)
    if rank == 0:
        reduced, plain = (safetensors.torch.load_file(folder / f"{m}-vars" / "__vars__") for m in modes)
        assert any("moment1" in name for name in plain)
        assert_equal(reduced, plain)
    wanted = modes["all"].train(3).parameters()
    for saved, resumed in (("reduce", "reduce"), ("reduce", "all"), ("all", "reduce")):
        run = modes[resumed].train(last=2)  # away from what was saved
        position = fleet.Checkpoint(folder / saved).restore(run.exe, run.main, run.scope)
        assert position is not None
        assert_equal(run.train(position.step).parameters(), wanted)


def refuses_to_save_alone() -> None:
    fleet.init(is_collective=True)
    rank, folder = collective.world().rank, os.environ["REDUCE_FOLDER"]
    run = Run(strategy(True)).train(last=1)
    foreign = next(name for name, owner in owners(run.main).items() if owner != rank and "velocity" in name)
    mine = next(name for name, owner in owners(run.main).items() if owner == rank and "velocity" in name)
    where = f"{folder}/{rank}"
    with paddle.static.scope_guard(run.scope):
        with pytest.raises(ConfigError, match=r"call fleet.save_persistables\(executor, dirname\)"):
            paddle.static.save(run.main, f"{where}/model")
        with pytest.raises(ConfigError, match=f"is optimizer state that rank {1 - rank} updates"):
            paddle.fluid.io.save_persistables(run.exe, where, run.main)
        with pytest.raises(ConfigError, match=f"save_vars: '{foreign}' is optimizer state"):
            paddle.static.save_vars(run.exe, where, run.main, vars=[foreign])
        with pytest.raises(ConfigError, match=r"state_dict: .* has a stale value"):
            run.optimizer.state_dict()
        assert not Path(where).exists(), "nothing was written"
        paddle.static.save_vars(run.exe, where, run.main, vars=[mine])
        paddle.fluid.io.save_params(run.exe, where, run.main)
        paddle.static.save(run.main.clone(for_test=True), f"{where}/model")
        paddle.fluid.io.save_inference_model(
            where, ["x", "y"], [run.main.var(run.loss.name)], run.exe, run.main
        )
    copied = run.main.clone()
    assert owners(copied) == owners(run.main)
    with pytest.raises(ConfigError, match=r"ReduceStrategy.Reduce, so rank"):
        paddle.static.save(copied, f"{where}/copy")
    fleet.barrier_worker()


def trains_special_programs() -> None:
    """Gradients that are copied before they are added up, or cast, and two optimizers."""
    place = fleet.init(is_collective=True).worker_index(), 2
    for case in SPECIAL:
        fleet.init(is_collective=True, strategy=strategy(False))
        wanted = equality_small.train(case, equality_small.with_fleet, *place)
        fleet.init(is_collective=True, strategy=strategy(True))
        trained = equality_small.train(case, equality_small.with_fleet, *place, with_gradients=False)
        for name in wanted:
            if name == "losses" or (name.startswith("after ") and "velocity" not in name):
                np.testing.assert_array_equal(trained[name], wanted[name], f"{case}: {name}")
    plain, reduced = (Run(strategy(reduces, fp16_allreduce=True)).train() for reduces in (False, True))
    assert_equal(reduced.parameters(), plain.parameters())


def two_losses_with_two_strategies() -> None:
    """Each minimize has its own strategy; the later one does not change the collectives of the earlier one."""
    fleet.init(is_collective=True)
    plain = strategy(False, fuse_all_reduce_ops=False)
    actual = []
    for first, second in (
        (plain, plain),
        (plain, strategy(True)),
        (strategy(True), strategy(True, fuses=True)),
        (strategy(False), strategy(True)),
    ):
        main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        startup.random_seed = 3
        with paddle.static.program_guard(main, startup), names.guard():
            x = paddle.static.data("x", [4, 6])
            h = paddle.static.nn.fc(x, 5)
            for made, size in ((first, 3), (second, 2)):
                loss = (paddle.static.nn.fc(h, size) ** 2).mean()
                inner = paddle.optimizer.Momentum(0.05, 0.9)
                fleet.distributed_optimizer(inner, made).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup, scope=scope)
        draw = np.random.RandomState(collective.world().rank)
        for _ in range(4):
            exe.run(main, {"x": draw.rand(4, 6).astype("float32")}, scope=scope)
        values = torch.cat([scope.get(p.name).flatten() for p in main.all_parameters()])
        for other in collective.world().group("util").all_gather(values):
            assert torch.equal(other, values), "the ranks differ"
        actual.append(values)
    for values in actual[1:]:
        assert torch.equal(values, actual[0])


def gradients_are_refused() -> None:
    fleet.init(is_collective=True)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), names.guard():
        loss = paddle.static.nn.fc(paddle.static.data("x", [4, 6]), 5).mean()
        _, pairs = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy(True)).minimize(loss)
        norm = sum((g**2).sum() for _, g in pairs)
    exe = paddle.static.Executor()
    exe.run(startup)
    feed = {"x": np.ones((4, 6), "float32")}
    for wanted in (norm, "fc_0.w_0@GRAD"):
        with pytest.raises(
            FetchError, match=r"which only rank \d has the sum of .* use ReduceStrategy.AllReduce"
        ):
            exe.run(main, feed, [wanted])
    exe.run(main, feed, [loss])


# --- in the test --------------------------------------------------------------------------------------


def check(ranks: ForkServer, size: int, job: Callable[[], None], **environ: str) -> None:
    ends = ranks.run(size, job, 240.0, **environ)
    assert not any(end.code for end in ends), "\n".join(end.said for end in ends)


def cases(*described: tuple[Any, ...]) -> str:
    """For each optimizer the switches of the runs in Reduce mode."""
    return json.dumps(described)


def test_two_ranks_end_bit_for_bit_where_all_reduce_ends(ranks: ForkServer) -> None:
    check(ranks, 2, trains_as_with_all_reduce, REDUCE_CASES=cases(("momentum", FUSED, OVERLAPPED)))


@pytest.mark.slow
def test_they_do_with_other_optimizers(ranks: ForkServer) -> None:
    others = cases(("sgd", {}), ("adam", FUSED | OVERLAPPED))
    check(ranks, 2, trains_as_with_all_reduce, REDUCE_CASES=others)


@pytest.mark.slow
def test_two_ranks_over_sockets_too(ranks: ForkServer) -> None:
    some = cases(("momentum", FUSED | OVERLAPPED))
    check(ranks, 2, trains_as_with_all_reduce, ARGOSY_SHM="0", REDUCE_CASES=some)


@pytest.mark.slow
def test_four_ranks_end_where_all_reduce_ends_but_for_rounding(ranks: ForkServer) -> None:
    some = cases(("momentum", OVERLAPPED), ("adam", FUSED))
    check(ranks, 4, trains_as_with_all_reduce, REDUCE_CASES=some)


def test_a_checkpoint_equals_that_of_all_reduce_and_either_mode_resumes_from_it(
    ranks: ForkServer, tmp_path: Path
) -> None:
    check(ranks, 2, saves_and_resumes, REDUCE_FOLDER=str(tmp_path))


def test_one_rank_alone_saves_no_state_that_others_have_updated(ranks: ForkServer, tmp_path: Path) -> None:
    check(ranks, 2, refuses_to_save_alone, REDUCE_FOLDER=str(tmp_path))


@pytest.mark.slow
def test_special_gradients_end_where_all_reduce_ends(ranks: ForkServer) -> None:
    check(ranks, 2, trains_special_programs)


def said(strategy: fleet.DistributedStrategy, ranks: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "argosy"):
        warn_ignored(strategy, ranks)
    return caplog.messages


def test_under_all_reduce_fuse_broadcast_ops_warns_in_the_words_of_paddle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = strategy(False)
    assert said(options, 2, caplog) == []
    options.build_strategy = BuildStrategy()
    assert said(options, 2, caplog) == [], "True by default: not assigned by the user"
    options.build_strategy.fuse_broadcast_ops = True
    assert said(options, 2, caplog) == ["Currently, fuse_broadcast_ops only works under Reduce mode."]
    options.build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    assert said(options, 2, caplog) == []


def test_reduce_with_one_rank_is_all_reduce(caplog: pytest.LogCaptureFixture) -> None:
    options = strategy(True)
    assert said(options, 1, caplog) == [
        "ReduceStrategy.Reduce with one rank is AllReduce: it owns all parameters"
    ]
    assert not is_reduce_mode(options, 1)
    assert is_reduce_mode(options, 2)


def test_in_reduce_mode_what_has_no_effect_warns_if_it_was_set(caplog: pytest.LogCaptureFixture) -> None:
    options = strategy(True, fuse_all_reduce_ops=False)
    assert said(options, 2, caplog) == []
    options.fuse_all_reduce_ops = options.use_hierarchical_allreduce = True
    first, second = said(options, 2, caplog)
    assert first.startswith("fuse_all_reduce_ops is off under ReduceStrategy.Reduce")
    assert second == "use_hierarchical_allreduce is not used under ReduceStrategy.Reduce"


def test_a_second_minimize_with_another_strategy_leaves_the_first_alone(ranks: ForkServer) -> None:
    ranks.check(2, two_losses_with_two_strategies)


def test_what_depends_on_a_gradient_cannot_be_fetched(ranks: ForkServer) -> None:
    ranks.check(2, gradients_are_refused)
