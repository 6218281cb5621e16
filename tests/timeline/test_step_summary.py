"""summary: exact numbers on traces with round ones.

rank 0    step       |0                                      100|
          forward    |0    20|
          backward        |20         50|
          wait                        |60    80|        in a node of role communicate, 55 to 80
          optimize                           |80  90|
          collectives          |40           80|        two, 40 to 70 and 60 to 80
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest

from argosy.timeline import read, summarize
from tests.timeline.traces_by_hand import Event, collective, event, trace, write

MS = 1000.0


def step(number: int, late: float = 0.0) -> list[Event]:
    """The step above; `late`: backward takes so much longer, and the wait so much less."""
    at = 200.0 * number
    spans = [
        event(f"step {number}", "step", at, at + 100),
        event("relu", "forward", at, at + 20),
        event("mm", "backward", at + 20, at + 50 + late),
        event("wait", "communicate", at + 55 + late, at + 80),
        event("sgd", "optimize", at + 80, at + 90),
        event("wait for g", "wait", at + 60 + late, at + 80),
        collective(2 * number, at + 40 + late, at + 70, queue=5.0),
        collective(2 * number + 1, at + 60 + late, at + 80),
    ]
    return [e | {"ts": e["ts"] * MS, "dur": e["dur"] * MS} for e in spans]


def of(tmp_path: Path, *ranks: list[Event]) -> Any:
    traces = [trace(rank, events, size=len(ranks)) for rank, events in enumerate(ranks)]
    return summarize(read(write(tmp_path, *traces)))


def test_the_parts_of_a_step_add_up_and_so_do_hidden_and_exposed(tmp_path: Path) -> None:
    summary = of(tmp_path, [*step(3), *step(4), *step(5)])
    (times,) = summary.ranks
    assert (times.steps, times.step_ms) == (3, 100)
    assert (times.forward_ms, times.backward_ms, times.optimize_ms) == (20, 30, 10)
    assert times.communicate_ms == 5
    assert times.exposed_ms == 20
    assert times.other_ms == 15
    assert times.communication_ms == 40
    assert times.hidden_ms == 20
    assert times.exposed_fraction == 0.5
    assert times.busy_ms == 80
    assert (times.collectives, times.megabytes) == (2, 8)
    assert summary.straggler is None


def test_the_median_does_not_mind_an_odd_step(tmp_path: Path) -> None:
    times = of(tmp_path, [*step(3), *step(4, late=15), *step(5)]).ranks[0]
    assert (times.exposed_ms, times.backward_ms, times.communication_ms) == (20, 30, 40)


def test_the_slowest_is_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    summary = of(tmp_path, [*step(3), *step(4)], [*step(3, late=10), *step(4, late=10)], [*step(3), *step(4)])
    straggler = summary.straggler
    assert (straggler.rank, straggler.busy_ms) == (1, 90)
    assert (straggler.waiting_rank, straggler.extra_wait_ms) == (0, 10)
    assert (straggler.num_last, straggler.num_collectives) == (4, 4)


def test_waiting_outside_of_a_collective_is_communication_too(tmp_path: Path) -> None:
    events = [event("step 3", "step", 0, 100), collective(1, 10, 20), event("wait for g", "wait", 15, 25)]
    (times,) = of(tmp_path, events).ranks
    assert (times.communication_ms, times.exposed_ms, times.hidden_ms) == pytest.approx((0.015, 0.010, 0.005))


def test_time_between_two_steps_counts_for_neither(tmp_path: Path) -> None:
    between = [collective(99, 350 * MS, 390 * MS), event("wait for it", "wait", 350 * MS, 390 * MS)]
    (times,) = of(tmp_path, [*step(1), *between, *step(2)]).ranks
    assert (times.communication_ms, times.exposed_ms, times.collectives) == (40, 20, 2)


def test_the_longest_collectives_come_first_each_once(tmp_path: Path) -> None:
    events = [event("step 1", "step", 0, 1000)]
    events += [
        collective(number, 100 * number, 100 * number + (number % 10)) for number in (1, 2, 3, 11, 12, 13)
    ]
    longest = of(tmp_path, events).longest
    assert [(one.name, one.times, one.ms) for one in longest] == [
        ("all_reduce g3", 2, 0.003),
        ("all_reduce g2", 2, 0.002),
        ("all_reduce g1", 2, 0.001),
    ]


def test_a_step_without_communication_has_nothing_exposed(tmp_path: Path) -> None:
    summary = of(tmp_path, [event("step 3", "step", 0, 100)], [event("step 3", "step", 0, 200)])
    assert (summary.ranks[0].exposed_fraction, summary.longest, summary.straggler) == (0, [], None)
