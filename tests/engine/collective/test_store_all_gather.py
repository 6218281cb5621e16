"""All-gathers through a real store: the values of all ranks, with a constant number of requests per rank."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from torch._C._distributed_c10d import Store, TCPStore

from argosy.engine.collective import store_all_gather
from argosy.engine.collective.store_all_gather import StoreAllGather, decode, encode


class CountingStore:
    """Forwards to a connection of its own, and counts the requests."""

    def __init__(self, store: TCPStore) -> None:
        self._store = store.clone()  # type: ignore[attr-defined]  # not in the stubs
        self.requests = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.requests += 1
        return cast(Callable[..., Any], getattr(self._store, name))


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.mark.parametrize("size", [2, 12])
def test_each_rank_gets_all_values_with_the_same_number_of_requests(store: TCPStore, size: int) -> None:
    stores = [CountingStore(store) for _ in range(size)]
    gathers = [
        StoreAllGather(cast(Store, stores[rank]), "values#1", rank, size, f"é {rank // 2}")
        for rank in reversed(range(size))
    ]
    for gather in gathers:
        assert gather.is_complete(timeout_s=30)
        assert gather.values == [f"é {rank // 2}" for rank in range(size)]
    assert {counting.requests for counting in stores} == {
        4
    }  # set, add, then wait and get, or multi_get and set


def test_the_others_finish_if_the_last_rank_was_killed_before_it_wrote_the_result(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_all_gather, "_WAIT", timedelta(seconds=0.2))
    first = StoreAllGather(store, "values#1", 0, 2, "a")
    other = store.clone()  # type: ignore[attr-defined]  # not in the stubs
    other.set("values#1/1", "b")
    other.add("values#1/arrived", 1)
    assert first.is_complete(timeout_s=30)
    assert first.values == ["a", "b"]


def test_a_cancelled_all_gather_ends(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_all_gather, "_WAIT", timedelta(seconds=0.1))
    gather = StoreAllGather(store, "values#1", 0, 2, "a")
    gather.cancelled.set()
    gather._thread.join(30)
    assert not gather._thread.is_alive()
    assert (gather.values, gather.failed) == ([], False)


def test_equal_values_are_sent_once() -> None:
    values = ["a"] * 1000 + ["b"] + ["a"] * 7
    assert encode(values) == '[["a", 1000], ["b", 1], ["a", 7]]'
    assert decode(encode(values).encode()) == values
