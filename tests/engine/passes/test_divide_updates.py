"""divide_updates: which buckets are chosen by the recorded program, and what is compiled for them."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

import argosy as paddle
from argosy import nn
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir.program import Program
from argosy.engine.ops.collectives import all_reduce_fused, wait
from argosy.engine.ops.host_updates import begin_updates, end_updates, rank_gradients, sum_of_ranks
from argosy.engine.ops.updates import FUSED
from argosy.engine.passes.base import finalize_collectives, rewrite, run_passes
from argosy.engine.passes.divide_updates import DivideChoice, DivideUpdates, divided_variables, divisible
from argosy.engine.passes.fuse_optimizer import FuseOptimizer

Adam, Momentum = paddle.optimizer.Adam, paddle.optimizer.Momentum


def program(
    optimizer: Any, after: Callable[[Any], Any] = lambda loss: None, losses: int = 1, **switches: Any
) -> Program:
    """A program for two ranks; `after` adds layers after minimize."""
    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    main = Program("main")
    with paddle.static.program_guard(main, Program()), paddle.utils.unique_name.guard():
        x = paddle.static.data("x", [None, 8], "float32")
        for _ in range(losses):
            loss = paddle.static.nn.fc(paddle.static.nn.fc(x, 16), 1).mean()
            _, pairs = optimizer.minimize(loss)
            rewrite(main, training_passes(strategy, main, pairs, ranks=2))
            finalize_collectives(main.graph)
        after(loss)
    return main


def targets(graph: fx.Graph) -> list[Any]:
    return [n.target for n in graph.nodes if n.op == "call_function"]


def test_the_updates_run_between_two_barriers_and_read_the_gradients_of_all_ranks() -> None:
    main = program(Adam(0.1))
    choice = divisible(main.graph)
    (start,) = main.graph.find_nodes(op="call_function", target=all_reduce_fused)
    assert choice == DivideChoice(frozenset({start}))
    gradient = main.var("fc_0.w_0@GRAD").node
    run_passes(main.graph, [FuseOptimizer()])
    report = run_passes(main.graph, [DivideUpdates(choice, frozenset({gradient}))])[0]
    assert report.text == "1 updates of 12 variables in 1 buckets are divided"
    order = targets(main.graph)
    assert all_reduce_fused not in order
    assert wait not in order
    (update,) = [n for n in main.graph.nodes if n.target in FUSED.values()]
    assert order.index(begin_updates) < order.index(rank_gradients) < order.index(update.target)
    assert order.index(update.target) < order.index(end_updates)
    names = {v.name for v in divided_variables(main.graph)}
    assert {"fc_0_w_0", "fc_0_w_0_moment1_0", "fc_0_w_0_moment2_0"} < names
    assert "fc_0_w_0_step_0" not in names, "each rank increments its own counts"
    (total,) = main.graph.find_nodes(op="call_function", target=sum_of_ranks)
    assert total.meta["replaces"] is gradient
    assert order.index(sum_of_ranks) < order.index(end_updates), "then other ranks may write new gradients"
    assert run_passes(main.graph, [DivideUpdates(divisible(main.graph), frozenset())])[0].changed == 0


def test_a_fetch_on_one_rank_does_not_change_the_choice() -> None:
    main = program(Momentum(0.1, 0.9), after=lambda loss: loss * 2.0)
    assert len(divisible(main.graph).starts) == 1


def test_buckets_whose_sums_have_other_readers_stay_as_they_are() -> None:
    clipped = program(Momentum(0.1, 0.9, grad_clip=nn.ClipGradByGlobalNorm(1.0)))
    assert not divisible(clipped.graph).starts
    assert divisible(clipped.graph).reason.endswith("and only updates may")
    cast = program(Momentum(0.1, 0.9), fp16_allreduce=True)
    assert not divisible(cast.graph).starts
    assert (
        divisible(program(paddle.optimizer.Lamb(0.1)).graph).reason == "lamb needs norms of whole parameters"
    )
    assert divisible(program(paddle.optimizer.Adagrad(0.1)).graph).reason.endswith("and only updates may")
    unfused = program(Momentum(0.1, 0.9), fuse_all_reduce_ops=False)
    assert divisible(unfused.graph) == DivideChoice(frozenset(), "no bucket of gradients")
    order = targets(unfused.graph)
    assert run_passes(unfused.graph, [DivideUpdates(divisible(unfused.graph), frozenset())])[0].changed == 0
    assert targets(unfused.graph) == order


def test_a_second_loss_after_the_first_updates_prevents_it() -> None:
    main = program(Momentum(0.1, 0.9), losses=2)
    assert divisible(main.graph).reason.endswith("reads a variable between the updates")


def test_a_program_that_writes_a_parameter_itself_prevents_it() -> None:
    def write(loss: Any) -> None:
        w = loss.program.var("fc_0.b_0")
        paddle.assign(w * 0.5, w)

    main = program(Momentum(0.1, 0.9), after=write)
    assert divisible(main.graph).reason.endswith("writes a variable that an update writes, too")


def test_values_of_the_new_nodes_are_inferred() -> None:
    main = program(Momentum(0.1, 0.9))
    run_passes(main.graph, [DivideUpdates(divisible(main.graph), frozenset(), sums_all=True)])
    sums = main.graph.find_nodes(op="call_function", target=sum_of_ranks)
    assert sorted(tuple(s.meta["val"].shape) for s in sums) == [(1,), (8, 16), (16,), (16, 1)]
    assert all(s.meta["val"].dtype is torch.float32 for s in sums)
