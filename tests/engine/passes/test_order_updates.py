"""order_updates: which updates run first, what keeps its place, and that the numbers are the same."""

# SPDX-License-Identifier: Apache-2.0
import os
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir.effects import mutated_inputs
from argosy.engine.ir.program import default_main_program
from argosy.engine.ops.collectives import wait
from argosy.engine.passes.base import Pass, Report, rewrite
from argosy.engine.passes.order_updates import OrderUpdates
from tests.jobs.scripts import equality_small
from tests.ranks import ForkServer

LAST_FIRST = ["fc_2.w_0", "fc_2.b_0", "fc_1.w_0", "fc_1.b_0", "fc_0.w_0", "fc_0.b_0"]


def strategy(**switches: Any) -> fleet.DistributedStrategy:
    """Exchanges overlap, one for each layer."""
    options = fleet.DistributedStrategy()
    options.sync_nccl_allreduce, options.fuse_grad_size_in_MB = False, 0
    for name, value in switches.items():
        setattr(options, name, value)
    return options


def three_layers() -> Any:
    x = paddle.static.data("x", [None, 4], "float32")
    for size in (8, 8, 2):
        x = paddle.static.nn.fc(x, size)
    return x.mean()


def planned(options: fleet.DistributedStrategy, optimizer: Any = None, loss: Any = None) -> list[Pass]:
    """Minimize; the passes for two ranks."""
    loss = three_layers() if loss is None else loss
    _, pairs = (optimizer or paddle.optimizer.Momentum(0.1, 0.9)).minimize(loss)
    return training_passes(options, loss.program, pairs, ranks=2)


def ordered(passes: list[Pass]) -> Report:
    assert passes[-1] == OrderUpdates()
    return rewrite(default_main_program(), passes)[-1]


def nodes() -> list[fx.Node]:
    return list(default_main_program().graph.nodes)


def updates() -> list[str]:
    """The parameters in the order of their updates."""
    named = default_main_program().names_of_nodes()
    updates = [n for n in nodes() if n.meta["role"] == "optimize" and any(True for _ in mutated_inputs(n))]
    return [named[n.args[0]] for n in updates]


def waited_for(node: fx.Node) -> set[fx.Node]:
    """The waits that a node depends on."""
    above = set().union(*map(waited_for, node.all_input_nodes))
    return above | {node} if node.target is wait else above


@pytest.mark.parametrize("fuses", [True, False])
@pytest.mark.parametrize("narrows", [True, False])
def test_the_update_of_the_last_layer_comes_first(fuses: bool, narrows: bool) -> None:
    report = ordered(planned(strategy(fuse_all_reduce_ops=fuses, fp16_allreduce=narrows)))
    assert updates() == LAST_FIRST
    early = 4 if fuses else 5
    changed = f"4 of 6 updates moved; {early} run before the last collective has completed"
    assert report == Report(4, changed)


def test_every_update_waits_for_its_own_exchange_and_for_no_other() -> None:
    ordered(planned(strategy(fuse_all_reduce_ops=False)))
    seen: list[fx.Node] = []
    for node in nodes():
        if node.target is torch.ops.argosy.momentum.default:
            assert waited_for(node) == {seen[-1]}, "its wait stands directly before it"
        if node.target is wait:
            seen.append(node)
    assert len(seen) == 6


def test_an_exchange_that_begins_behind_backward_begins_before_the_first_wait() -> None:
    ordered(planned(strategy()))
    targets = [str(n.target) for n in nodes()]
    started = [i for i, t in enumerate(targets) if t == "argosy.all_reduce_fused.default"]
    backward = max(i for i, n in enumerate(nodes()) if n.meta["role"] == "backward")
    assert len(started) == 3
    assert backward < started[-1] < targets.index("argosy.wait.default")


@pytest.mark.parametrize("fuses", [True, False])
def test_a_second_run_changes_nothing(fuses: bool) -> None:
    ordered(planned(strategy(fuse_all_reduce_ops=fuses)))
    once = str(default_main_program())
    (again,) = rewrite(default_main_program(), [OrderUpdates()])
    assert again.changed == 0
    assert again.text.startswith("0 of 6 updates moved; ")
    assert str(default_main_program()) == once


def test_nodes_between_a_wait_and_its_update_move_with_it() -> None:
    """Clipping, L1Decay: several nodes a gradient, some of which read no gradient at all."""
    decay = paddle.regularizer.L1Decay(0.01)
    clip = paddle.nn.ClipGradByNorm(1.0)
    ordered(planned(strategy(), paddle.optimizer.SGD(0.1, weight_decay=decay, grad_clip=clip)))
    assert updates() == LAST_FIRST
    signs = [n for n in nodes() if n.target is torch.ops.aten.sign.default]
    assert len(signs) == 6
    for before, sign in pairwise(signs):
        between = nodes()[nodes().index(before) : nodes().index(sign)]
        assert any(n.target is torch.ops.argosy.sgd.default for n in between), (
            "signs are not made all at once"
        )


def test_clipping_by_the_global_norm_keeps_the_order_of_the_parameters() -> None:
    """Every update needs every gradient."""
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    report = ordered(planned(strategy(), paddle.optimizer.SGD(0.1, grad_clip=clip)))
    assert report.text == "0 of 6 updates moved; 0 run before the last collective has completed"
    assert updates() == LAST_FIRST[4:] + LAST_FIRST[2:4] + LAST_FIRST[:2]


def test_what_reads_a_weight_keeps_its_side_of_the_update() -> None:
    """No value flows between the copies and the update: they touch the same memory."""
    loss, optimizer = three_layers(), paddle.optimizer.Momentum(0.1, 0.9)
    program = default_main_program()
    pairs = optimizer.backward(loss)
    with program.recorder.in_role("optimize"):
        before = torch.ops.aten.clone.default(program.var("fc_0.w_0"))
    optimizer.apply_gradients(pairs)
    with program.recorder.in_role("optimize"):
        after = torch.ops.aten.clone.default(program.var("fc_2.w_0"))
    ordered(training_passes(strategy(), loss.program, pairs, ranks=2))
    assert updates() == LAST_FIRST
    place = {n: i for i, n in enumerate(nodes())}
    actual = [n for n in nodes() if n.target is torch.ops.argosy.momentum.default]
    assert place[actual[0]] < place[after.node]
    assert place[actual[3]] < place[before.node] < place[actual[4]], "beside the update, not earlier"


def test_random_numbers_are_drawn_in_the_same_order() -> None:
    """Noise on the gradients: whichever is drawn first gets the generator's first numbers."""
    passes = planned(strategy())
    program = default_main_program()
    with program.recorder.in_role("optimize"):
        for name in LAST_FIRST[::-1]:
            torch.ops.aten.rand_like.default(program.var(f"{name}@GRAD"))
    ordered(passes)
    drawn = [n for n in nodes() if n.target is torch.ops.aten.rand_like.default]
    assert [n.name for n in drawn] == ["rand_like", *(f"rand_like_{i}" for i in range(1, 6))]


def test_without_an_exchange_nothing_is_done() -> None:
    passes = planned(strategy())
    once = str(default_main_program())
    assert rewrite(default_main_program(), passes[-1:]) == [Report(0, "no update waits for a collective")]
    assert str(default_main_program()) == once


def test_a_second_minimize_orders_its_own_updates() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    hidden = paddle.static.nn.fc(x, 4)
    for loss in (paddle.static.nn.fc(hidden, 2).mean(), paddle.static.nn.fc(hidden, 3).mean()):
        report = ordered(planned(strategy(), loss=loss))
        assert report.text.endswith("updates moved; 2 run before the last collective has completed")
    first = ["fc_1.w_0", "fc_1.b_0", "fc_0.w_0", "fc_0.b_0"]
    assert updates() == [*first, *(name.replace("fc_1", "fc_2") for name in first)]


def test_a_sum_that_is_waited_for_at_once_needs_no_order() -> None:
    assert OrderUpdates() not in planned(strategy(sync_nccl_allreduce=True))


# --- two ranks ----------------------------------------------------------------------------------------

CASES = {
    "1": ("one gradient of two", "convolution"),
    "0": ("momentum with decay", "value", "two optimizers"),
}
"""What is trained through shared memory, and through gloo."""


def train_in_both_orders() -> None:
    fleet.init(is_collective=True)
    place = fleet.worker_index(), fleet.worker_num()
    for case in CASES[os.environ["ARGOSY_SHM"]]:
        results = []
        for overlaps in (False, True):
            fleet.init(is_collective=True, strategy=strategy(sync_nccl_allreduce=not overlaps))
            results.append(equality_small.train(case, equality_small.with_fleet, *place))
        for name, value in results[0].items():
            np.testing.assert_array_equal(results[1][name], value, f"{case}: {name}")


@pytest.mark.parametrize("shm", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_two_ranks_end_bit_equal_in_either_order(ranks: ForkServer, shm: str) -> None:
    ranks.check(2, train_in_both_orders, ARGOSY_SHM=shm)
