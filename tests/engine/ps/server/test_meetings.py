"""Meetings: all get the same, those that are over are remembered for a while."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ps.server import meetings
from argosy.engine.ps.server.meetings import Meetings, Result


def met(members: Meetings, name: str, number: int, who: int, found: list[Result], size: int = 1) -> None:
    members.join((name, number), who, [torch.full((size,), float(who))], found.append)


def test_everybody_gets_what_all_have_brought_in_the_order_of_their_numbers() -> None:
    group, found = Meetings(lambda _: {0, 1, 2}), list[Result]()
    for who in (2, 0):
        met(group, "sum", 0, who, found)
    assert group.missing(("sum", 0)) == [1]
    assert not found
    met(group, "sum", 0, 1, found)
    assert [[part.tolist() for (part,) in one] for one in found] == [[[0.0], [1.0], [2.0]]] * 3


def test_who_is_dropped_is_not_waited_for() -> None:
    live, found = {0, 1}, list[Result]()
    group = Meetings(lambda _: live)
    met(group, "end", 0, 0, found)
    live.discard(1)
    group.check()
    assert [len(one) for one in found] == [1]


def test_a_member_that_begins_anew_gets_the_results_of_the_meetings_that_are_over() -> None:
    group, found = Meetings(lambda _: {0, 1}), list[Result]()
    for number in range(50):
        for who in (0, 1):
            met(group, "step", number, who, found)
    again: list[Result] = []
    for number in range(50):
        met(group, "step", number, 1, again)
    assert len(again) == 50
    met(group, "step", 50, 1, again)
    assert len(again) == 50, "that one is not over yet"


def test_what_is_kept_of_results_is_bounded_and_who_asks_for_more_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meetings, "_KEPT_BYTES", 1000)
    group, found = Meetings(lambda _: {0}), list[Result]()
    for number in range(10):
        met(group, "large", number, 0, found, size=100)
    assert len(group._done) == 2
    with pytest.raises(ConfigError, match=r"large: this meeting, number 3, is over.*start it anew"):
        met(group, "large", 3, 0, found)


def test_a_result_is_written_down_before_anybody_gets_it() -> None:
    happened: list[str] = []
    group = Meetings(lambda _: {0, 1}, lambda key, result: happened.append(f"{key[0]} {len(result)}"))
    for who in (0, 1):
        group.join(("sum", 0), who, [torch.zeros(1)], lambda _: happened.append("got"))
    assert happened == ["sum 2", "got", "got"]


def test_a_meeting_can_be_ended_with_a_result_from_elsewhere() -> None:
    group, found = Meetings(lambda _: {0, 1}), list[Result]()
    met(group, "norm", 7, 0, found)
    group.end(("norm", 7), [[torch.tensor(5.0)]])
    met(group, "norm", 7, 1, found)
    assert [one[0][0].item() for one in found] == [5.0, 5.0]
