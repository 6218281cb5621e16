"""Periods: when they are due, which nodes run, what is printed, saved and rejected."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch

import argosy as paddle
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.effects import is_collective, live_nodes
from argosy.engine.ir.periods import Period, conditions, due_names, inactive, unfinished
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.collectives import all_reduce_hierarchical
from argosy.engine.passes.base import rewrite
from argosy.framework.period import add_period
from argosy.optimizer.gradient_merge import GradientMergeOptimizer


def due_steps(period: Period, steps: int, **variables: int) -> list[int]:
    """The steps, from 1, in which the period is due."""
    return [s for s in range(1, steps + 1) if period.is_due({"step": s - 1, **variables}.__getitem__)]


def merged(k: int = 4) -> tuple[Program, GradientMergeOptimizer]:
    x = paddle.static.data("x", [None, 3])
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.nn.fc(x, 4), 2))
    optimizer = GradientMergeOptimizer(paddle.optimizer.Momentum(0.1), k)
    optimizer.minimize(loss)
    return default_main_program(), optimizer


@pytest.mark.parametrize(
    ("period", "expected", "text"),
    [
        (Period("p", "step", 4), [4, 8], "every 4 steps"),
        (Period("p", "step", 3, begin_step=2), [1, 2, 5, 8], "in the first 2 steps, then every 3 steps"),
        (
            Period("p", "step", 1, begin_step=1),
            [1, 2, 3, 4, 5, 6, 7, 8, 9],
            "in the first step, then every step",
        ),
        (Period("p", "step", 0, begin_step=1), [1], "in the first step"),
        (Period("p", "step", "k", last="last"), [7, 8, 9], "every k steps"),
    ],
)
def test_a_period_is_due_in_the_first_steps_and_then_every_k(
    period: Period, expected: list[int], text: str
) -> None:
    assert due_steps(period, 9, k=4, last=3) == expected
    assert str(period) == text


def test_a_period_is_unfinished_after_steps_in_which_it_was_not_due() -> None:
    period, adaptive = Period("p", "step", 4), Period("q", "step", "k", last="last")
    first = Period("first", "step", 0, begin_step=1)
    values = [{"step": step, "k": 2, "last": 3}.__getitem__ for step in range(5)]
    assert [unfinished((period, first), value) for value in values] == [None, period, period, period, None]
    assert [unfinished((adaptive,), value) for value in values] == [None, adaptive, adaptive, None, adaptive]
    assert due_names((period, first), values[0]) == {"first"}


def test_what_reads_a_periodic_node_is_periodic() -> None:
    program, x = default_main_program(), paddle.static.data("x", [3])
    with program.recording(), program.recorder.in_period("p"):
        y = x.value + 1
    with program.recording():
        z = y * 2
    with program.recording(), program.recorder.in_period("p", unless=True):
        other = x.value * 3
    nodes = {name: program.recorder.node(v) for name, v in {"y": y, "z": z, "other": other}.items()}
    assert conditions(program.graph) == {
        nodes["y"]: {"p"},
        nodes["z"]: {"p"},
        nodes["other"]: {"!p"},
    }
    assert inactive(program.graph, frozenset({"p"})) == {nodes["other"]}
    assert inactive(program.graph, frozenset()) == {nodes["y"], nodes["z"]}


def test_a_printed_program_says_in_which_steps_a_node_runs() -> None:
    program, _ = merged()
    lines = str(program).splitlines()
    (update,) = [line for line in lines if "momentum(fc_0.w_0," in line]
    (accumulated,) = [line for line in lines if "accumulate([fc_0.w_0@GRAD@GradientMerge" in line]
    assert update.endswith("  # every 4 steps")
    assert accumulated.endswith("  # except every 4 steps")
    assert not [line for line in lines if line.startswith("forward") and "steps" in line]
    assert program.to_dot().count("dashed") == len(conditions(program.graph))


def test_two_periods_have_names_of_their_own() -> None:
    first, second = add_period("p", 2), add_period("p", 3)
    assert [first.name, second.name] == ["p", "p_1"]
    assert default_main_program().training.periods == (first, second)


@pytest.mark.parametrize("hierarchical", [False, True])
def test_steps_that_are_not_due_have_no_collectives(hierarchical: bool) -> None:
    program, optimizer = merged()
    strategy = DistributedStrategy()
    strategy.use_hierarchical_allreduce, strategy.sync_nccl_allreduce = hierarchical, False
    rewrite(program, training_passes(strategy, program, optimizer.applied, ranks=4, hosts=2))
    graph = program.graph
    assert bool(graph.find_nodes(op="call_function", target=all_reduce_hierarchical)) == hierarchical
    collectives = [n for n in graph.nodes if is_collective(n) and n.all_input_nodes]
    assert collectives
    assert set(collectives) <= conditions(graph).keys()
    live = live_nodes(graph, set(), without=inactive(graph, frozenset()))
    assert not [n for n in live if is_collective(n) or "momentum" in n.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "fc_0.w_0"}, r"'fc_0.w_0' is not an int64 variable"),
        ({"every": -1}, r"is due every -1 steps"),
        ({"every": True}, r"is malformed"),
        ({"begin_step": -1}, r"begins at a negative step"),
        ({"name": "other"}, r"runs in period 'gradient_merge', which the program does not have"),
        ({"last": "gradient_merge_step"}, r"is due every 4 steps, which is invalid"),
        ({"unknown": 1}, r"is not a valid program"),
    ],
)
def test_malformed_periods_are_rejected(change: dict[str, Any], message: str) -> None:
    data = to_dict(merged()[0])
    data["periods"][0] |= change
    with pytest.raises(ProgramError, match=message):
        from_dict(data)


def test_files_without_periods_are_loaded() -> None:
    x = paddle.static.data("x", [None, 3])
    paddle.static.nn.fc(x, 1)
    data = to_dict(default_main_program())
    del data["periods"]
    assert from_dict(data).training.periods == ()


def test_several_threads_cannot_count_the_steps() -> None:
    program, _ = merged()
    exe = paddle.static.Executor()

    class Given:
        thread_num = 2

        def batches(self) -> Any:
            return iter([{"x": torch.ones(2, 3).numpy()}] * 4)

    exe.run(paddle.static.default_startup_program())
    with pytest.raises(ConfigError, match=r"3 threads, but nodes of the program run every 4 steps"):
        exe.train_from_dataset(program, Given(), thread=3)
    exe.train_from_dataset(program, Given())
    assert paddle.static.global_scope().get("gradient_merge_step").item() == 4
