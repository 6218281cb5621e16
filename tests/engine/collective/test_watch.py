"""What ranks tell each other through the store: two watches in one process, over real sockets."""

# SPDX-License-Identifier: Apache-2.0
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch._C._distributed_c10d import Store, TCPStore

from argosy.engine.collective.watch import Record, Watch


@contextmanager
def two_watches() -> Iterator[tuple[Watch, Watch, Store]]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = Watch(store, 0, 3), Watch(store, 1, 3)
    try:
        yield first, second, store
    finally:
        second.end("done")
        first.end("done")


def test_a_look_gives_the_records_of_those_who_have_connected() -> None:
    with two_watches() as (first, second, _):
        assert set(first.look()) == {1}  # rank 2 has told nothing, and is not waited for
        second.own.step, second.own.started["dp"], second.own.waiting = 7, 12, "dp#12 all_reduce w@GRAD"
        second.look()  # whoever looks also tells
        told = first.look()[1]
        assert told == Record(told.beat, 7, {"dp": 12}, "dp#12 all_reduce w@GRAD")
        assert first.records == {1: told}


def test_a_rank_that_lives_beats_and_one_that_does_not_is_silent() -> None:
    with two_watches() as (first, _, store):
        store.set("watch/2", json.dumps({"beat": 4, "step": 2}))
        before = first.look()
        time.sleep(1.3)
        after = first.look()
        assert after[1].beat > before[1].beat
        assert first.silent_s(1) < 1.2
        assert after[2] == Record(4, 2)
        assert first.silent_s(2) >= 1.3
        assert first.deaf_s() < 1.2
        store.set("watch/2", json.dumps({"beat": 5}))
        first.look()
        assert first.silent_s(2) == 0


def test_an_end_is_told_once_and_the_first_reason_counts() -> None:
    with two_watches() as (first, second, _):
        second.end("ValueError: a bad batch")
        second.end("done")
        assert first.look()[1].end == "ValueError: a bad batch"


def test_the_rank_with_the_store_stays_until_the_others_have_ended() -> None:
    with two_watches() as (first, second, _):
        first.look()
        later = threading.Timer(1.0, second.end, ["done"])
        later.start()
        began = time.monotonic()
        first.end("done")
        assert 0.9 < time.monotonic() - began < 5
        later.join()


def test_after_a_failure_it_does_not_stay_longer_than_a_launcher_waits() -> None:
    with two_watches() as (first, _, _store):
        began = time.monotonic()
        first.end("ValueError: a bad batch")  # while rank 1 is busy for long
        assert time.monotonic() - began < 4


def test_new_groups_may_appear_while_the_record_is_told() -> None:
    with two_watches() as (first, second, _):
        for number in range(3000):
            second.own.started[f"group-{number}"] = 1
            second._wanted.set()
        assert not second.store_is_gone
        second.look(timeout_s=30)
        assert len(first.look(timeout_s=30)[1].started) == 3000


def test_alone_there_is_nobody_to_tell() -> None:
    watch = Watch(None, 0, 1)
    assert watch.look() == {}
    watch.end("done")
    assert not watch._thread.is_alive()
