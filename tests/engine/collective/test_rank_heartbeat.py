"""Heartbeats through the store: two monitors in one process, over real sockets."""

# SPDX-License-Identifier: Apache-2.0
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch._C._distributed_c10d import Store, TCPStore

from argosy.engine.collective.rank_liveness import RankMonitor
from argosy.engine.collective.rank_status import RankStatus


@contextmanager
def two_monitors() -> Iterator[tuple[RankMonitor, RankMonitor, Store]]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = RankMonitor(store, 0, 3), RankMonitor(store, 1, 3)
    try:
        yield first, second, store
    finally:
        second.finish("done")
        first.finish("done")


def test_a_poll_returns_the_statuses_of_the_connected_ranks() -> None:
    with two_monitors() as (first, second, _):
        assert set(first.poll()) == {1}  # rank 2 has published nothing, and is not waited for
        second.local.step, second.local.started["dp"], second.local.waiting = 7, 12, "dp#12 all_reduce w@GRAD"
        second.poll()  # a poll also publishes
        status = first.poll()[1]
        assert status == RankStatus(status.heartbeat, 7, {"dp": 12}, "dp#12 all_reduce w@GRAD")
        assert first.statuses == {1: status}


def test_a_live_rank_sends_heartbeats_and_a_dead_one_is_unresponsive() -> None:
    with two_monitors() as (first, _, store):
        store.set("status/2", json.dumps({"heartbeat": 4, "step": 2}))
        before, began = first.poll(), time.monotonic()
        while (after := first.poll())[1].heartbeat == before[1].heartbeat:
            assert time.monotonic() - began < 60
            time.sleep(0.02)
        assert after[2] == RankStatus(4, 2)
        assert first.unresponsive_s(2) > max(first.unresponsive_s(1), first.store_unresponsive_s())
        assert first.unresponsive_s(2) >= time.monotonic() - began - 0.5
        store.set("status/2", json.dumps({"heartbeat": 5}))
        first.poll()
        assert first.unresponsive_s(2) == 0


def test_an_outcome_is_published_once_and_the_first_one_counts() -> None:
    with two_monitors() as (first, second, _):
        second.finish("ValueError: a bad batch")
        second.finish("done")
        assert first.poll()[1].outcome == "ValueError: a bad batch"


def test_the_rank_with_the_store_lingers_until_the_others_have_finished() -> None:
    with two_monitors() as (first, second, _):
        first.poll()
        later = threading.Timer(1.0, second.finish, ["done"])
        later.start()
        began = time.monotonic()
        first.finish("done")
        assert 0.9 < time.monotonic() - began < 5
        later.join()


def test_after_a_failure_it_does_not_linger_longer_than_a_launcher_waits() -> None:
    with two_monitors() as (first, _, _store):
        began = time.monotonic()
        first.finish("ValueError: a bad batch")  # while rank 1 is busy for long
        assert time.monotonic() - began < 4


def test_new_groups_may_appear_while_the_status_is_published() -> None:
    with two_monitors() as (first, second, _):
        for number in range(3000):
            second.local.started[f"group-{number}"] = 1
            second._poll_requested.set()
        assert not second.store_lost
        second.poll(timeout_s=30)
        assert len(first.poll(timeout_s=30)[1].started) == 3000


def test_a_single_rank_publishes_nothing() -> None:
    monitor = RankMonitor(None, 0, 1)
    assert monitor.poll() == {}
    monitor.finish("done")
    assert not monitor._thread.is_alive()
