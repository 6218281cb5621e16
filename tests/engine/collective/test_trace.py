"""The trace of collectives: nothing is recorded unless tracing is on."""

# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from argosy.engine.collective import trace
from argosy.engine.collective.trace import TracedCollective, record_start


def test_without_tracing_nothing_is_recorded() -> None:
    assert trace.recording is None
    assert record_start("all_reduce", "g", "dp", 1, 4) is None


def test_collectives_are_recorded_in_the_order_of_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[TracedCollective] = []
    monkeypatch.setattr(trace, "recording", recorded)
    before = time.perf_counter_ns()
    first, second = record_start("all_reduce", "g", "dp", 7, 4), record_start("broadcast", "", "dp.1", 1, 8)
    assert recorded == [first, second]
    assert first is not None
    assert first.started_ns >= before
    assert (first.number, first.nbytes, first.began_ns, first.ended_ns, first.waited) == (7, 4, 0, 0, [])
