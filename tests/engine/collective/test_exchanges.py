"""exchanges: nothing is noted unless somebody records."""

# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from argosy.engine.collective import exchanges
from argosy.engine.collective.exchanges import Exchange, note_start


def test_without_a_recording_there_is_nothing_to_fill_in() -> None:
    assert exchanges.recording is None
    assert note_start("all_reduce", "g", "dp", 1, 4) is None


def test_a_recording_holds_what_was_started_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Exchange] = []
    monkeypatch.setattr(exchanges, "recording", found)
    before = time.perf_counter_ns()
    first, second = note_start("all_reduce", "g", "dp", 7, 4), note_start("broadcast", "", "dp.1", 1, 8)
    assert found == [first, second]
    assert first is not None
    assert first.started_ns >= before
    assert (first.number, first.nbytes, first.began_ns, first.ended_ns, first.waited) == (7, 4, 0, 0, [])
