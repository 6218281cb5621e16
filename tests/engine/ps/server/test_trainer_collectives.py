"""All-gathers: all members get the same result; completed results are stored for a while."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time

import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ps.server import trainer_collectives
from argosy.engine.ps.server.trainer_collectives import AllGathers, CollectiveKey, Gathered


def join(
    gathers: AllGathers, name: str, number: int, who: int, results: list[Gathered], size: int = 1
) -> None:
    gathers.join((name, number), who, [torch.full((size,), float(who))], results.append)


def test_every_member_gets_the_tensors_of_all_in_the_order_of_their_numbers() -> None:
    group, results = AllGathers(lambda _: {0, 1, 2}), list[Gathered]()
    for who in (2, 0):
        join(group, "sum", 0, who, results)
    assert group.missing(("sum", 0)) == [1]
    assert not results
    join(group, "sum", 0, 1, results)
    assert [[part.tolist() for (part,) in one] for one in results] == [[[0.0], [1.0], [2.0]]] * 3


def test_an_all_gather_does_not_wait_for_dropped_members() -> None:
    live, results = {0, 1}, list[Gathered]()
    group = AllGathers(lambda _: live)
    join(group, "end", 0, 0, results)
    live.discard(1)
    group.check()
    assert [len(one) for one in results] == [1]


def test_a_restarted_member_gets_the_results_of_completed_all_gathers() -> None:
    group, results = AllGathers(lambda _: {0, 1}), list[Gathered]()
    for number in range(50):
        for who in (0, 1):
            join(group, "step", number, who, results)
    again: list[Gathered] = []
    for number in range(50):
        join(group, "step", number, 1, again)
    assert len(again) == 50
    join(group, "step", 50, 1, again)
    assert len(again) == 50, "that one is not over yet"


def test_stored_results_are_bounded_and_older_ones_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer_collectives, "_MAX_RESULT_BYTES", 1000)
    group, results = AllGathers(lambda _: {0}), list[Gathered]()
    for number in range(10):
        join(group, "large", number, 0, results, size=100)
    assert len(group._done.items()) == 2
    with pytest.raises(ConfigError, match=r"all-gather 'large', number 3, completed so long ago.*restart it"):
        join(group, "large", 3, 0, results)


def test_a_result_is_logged_before_any_member_gets_it() -> None:
    happened: list[str] = []
    group = AllGathers(lambda _: {0, 1}, lambda key, result: happened.append(f"{key[0]} {len(result)}"))
    for who in (0, 1):
        group.join(("sum", 0), who, [torch.zeros(1)], lambda _: happened.append("got"))
    assert happened == ["sum 2", "got", "got"]


def test_an_all_gather_can_be_completed_with_a_given_result() -> None:
    group, results = AllGathers(lambda _: {0, 1}), list[Gathered]()
    join(group, "norm", 7, 0, results)
    group.complete(("norm", 7), [[torch.tensor(5.0)]])
    join(group, "norm", 7, 1, results)
    assert [one[0][0].item() for one in results] == [5.0, 5.0]


def test_an_all_gather_is_completed_once_by_many_threads() -> None:
    for _ in range(200):
        written: list[Gathered] = []
        start = threading.Barrier(4)

        def slowly(key: CollectiveKey, result: Gathered, written: list[Gathered] = written) -> None:
            written.append(result)
            time.sleep(0.0005)

        group = AllGathers(lambda _: {0}, slowly)
        results: list[Gathered] = []
        group.join(("sum", 0), 1, [torch.zeros(1)], results.append)

        def come(who: int, group: AllGathers = group, results: list[Gathered] = results) -> None:
            start.wait()  # noqa: B023  (all threads are of this turn)
            group.join(("sum", 0), who, [torch.full((1,), float(who))], results.append)

        threads = [threading.Thread(target=come, args=(who,)) for who in (0, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(written) == 1
        assert len(results) == 5
        assert all(one is written[0] for one in results), "all members have the logged result"


def test_an_all_gather_whose_result_cannot_be_logged_can_be_completed_later() -> None:
    is_full = True

    def write(key: CollectiveKey, result: Gathered) -> None:
        if is_full:
            raise OSError("no space")

    group, results = AllGathers(lambda _: {0}, write), list[Gathered]()
    with pytest.raises(OSError, match="no space"):
        join(group, "sum", 0, 0, results)
    is_full = False
    group.check()
    assert len(results) == 1
