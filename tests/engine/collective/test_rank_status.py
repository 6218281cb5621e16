"""Statuses in a real store, and their digest: which ranks it lists, and what a rank of a large job reads."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch._C._distributed_c10d import TCPStore

from argosy.engine.collective import rank_status
from argosy.engine.collective.rank_liveness import RankMonitor
from argosy.engine.collective.rank_status import MAX_LISTED, RankStatus, StatusDigest, condense


def test_a_digest_lists_the_ranks_that_others_wait_for() -> None:
    every = StatusDigest({rank: RankStatus(1, 7, {"dp": 12, "util": 2}) for rank in range(100)})
    every.statuses[40].started = {"dp": 11, "util": 2}
    every.statuses[50].started = {"dp": 12}
    every.statuses[60].outcome = "done"
    digest = condense(every, unresponsive=[70, 60])
    assert list(digest.statuses) == [40, 50, 60, 70]
    assert digest.statuses[40] is every.statuses[40]
    assert digest.unresponsive == [70]  # rank 60 has exited


def test_a_digest_of_many_ranks_is_small_and_has_the_cause_of_a_failure() -> None:
    lost = "PeerLostError: all_reduce: rank 4000 failed"
    every = StatusDigest({rank: RankStatus(1, 7, {"dp": rank}, outcome=lost) for rank in range(8000)})
    every.statuses[4000].outcome = "ValueError: a bad batch"
    every.unconnected = list(range(8000, 9000))
    digest = condense(every, unresponsive=[])
    assert 4000 in digest.statuses
    assert set(range(MAX_LISTED)) <= set(digest.statuses)  # the furthest behind
    assert len(digest.statuses) <= 2 * MAX_LISTED
    assert digest.unconnected == list(range(8000, 8000 + MAX_LISTED))


def test_a_status_is_read_as_it_was_published() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    status = RankStatus(3, 2, {"dp/intra2": 5}, "dp/intra2#5 all_reduce w", (2, 4, 1))
    rank_status.publish(store, 2, status)
    read = rank_status.read_statuses(store, [1, 2], {})
    assert (read.statuses, read.unconnected) == ({2: status}, [1])
    assert not rank_status.has_digest(store)
    rank_status.publish_digest(store, StatusDigest({}, [1], [2]))
    assert rank_status.has_digest(store)
    assert rank_status.read_digest(store) == StatusDigest({}, [1], [2])
    assert rank_status.read_digest(store, [2]) == StatusDigest({2: status}, [1], [2])


@contextmanager
def monitors(size: int, connected: int) -> Iterator[tuple[list[RankMonitor], TCPStore]]:
    """Monitors of ranks of a job that is too large for direct reads, in one process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [RankMonitor(store, rank, size) for rank in range(connected)]
    try:
        yield ranks, store
    finally:
        for monitor in reversed(ranks):
            monitor.finish("done")


def poll_until_digested(first: RankMonitor, other: RankMonitor) -> dict[int, RankStatus]:
    first._digest_at = float("-inf")  # due now
    first.poll(timeout_s=30)
    assert first.poll(timeout_s=30)  # the digest is published after the first poll has returned
    return other.poll(timeout_s=30)


def test_a_rank_of_a_large_job_reads_who_is_behind_unconnected_or_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rank_status, "MAX_DIRECT_RANKS", 3)
    with monitors(size=5, connected=4) as ((first, second, third, fourth), store):
        assert first.uses_digest
        for monitor, count in ((first, 2), (second, 2), (third, 2), (fourth, 1)):
            monitor.local.started["dp"] = count
            monitor.poll(timeout_s=30)  # a poll also publishes
        statuses = poll_until_digested(first, second)
        assert set(statuses) == {3}  # not rank 2, which has started as many as any other
        assert second.unconnected == {4}
        assert second.behind(range(5), "dp", 2) == [3, 4]
        assert second.unresponsive({}) == []
        assert set(second.poll(timeout_s=30, watched=[2])) == {2, 3}
        third.finish("ValueError: a bad batch")
        first._digest_at = float("inf")  # not with a digest: read from the list of failures
        assert second.poll(timeout_s=30)[2].outcome == "ValueError: a bad batch"
        assert json.loads(store.get("status/failures").decode())[0] == 2
