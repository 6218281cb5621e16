"""Heartbeats of the ranks, and the decision whether a rank that others wait for will still join.

Every rank publishes its status once a second (rank_status.py). A rank that waits longer than a second reads the
statuses of the ranks that it may be waiting for. They show whether a rank is late (alive, and busy with something
else), unresponsive (no new heartbeat: it is stopped or unreachable), waiting for a collective that this rank has not
started (a deadlock), or has exited.

Only a background thread accesses the store: while rank 0 is stopped, the store does not reply, and a request to it
blocks forever. The main thread reads what the background thread has fetched, and the clock.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

from argosy.engine.collective import rank_status
from argosy.engine.collective.rank_status import RankStatus, StatusDigest
from argosy.engine.errors import CollectiveError, PeerLostError

_PERIOD_S = 1.0
_LINGER_S = {True: 10.0, False: 2.5}
"""How long rank 0 keeps the store open for ranks that still run: after success, and after a failure, when a launcher
waits for the exit."""
_STOPPED = "it is stopped, or its host is unreachable. Check its process; ARGOSY_HEARTBEAT_TIMEOUT_S gives it more time"


@dataclass(frozen=True)
class Timeouts:
    """How long a collective waits for the ranks that have not joined."""

    collective_timeout_s: float = 1800.0
    """For a rank that is alive and busy with something else."""
    heartbeat_timeout_s: float = 60.0
    """For a rank that sends no heartbeat, or a store that does not reply."""
    connect_timeout_s: float = 300.0
    """For a rank that has never connected."""


class RankMonitor:
    """Publishes the status of this rank in the store, and reads the statuses of the others."""

    def __init__(self, store: Store | None, rank: int, size: int) -> None:
        self.local = RankStatus()
        """The status of this rank."""
        self.rank, self.size = rank, size
        self.failed_step = ""
        """Not empty: the exception that ended a step of this rank halfway; the ranks are out of step from then on."""
        self._pid = os.getpid()
        self.store_lost = store is None
        """True once the store is gone, which means that rank 0, which hosts it, has exited."""
        self.statuses: dict[int, RankStatus] = {}
        """The statuses of others, as of the last poll: in a small job all that have connected (see rank_status.py)."""
        self.unconnected: set[int] = set()
        """Ranks that had published no status at the last poll."""
        self._unresponsive: list[int] = []
        """With a digest: the unresponsive ranks that rank 0 has reported."""
        self.uses_digest = size > rank_status.MAX_DIRECT_RANKS
        self._digest_period_s = max(_PERIOD_S, size / rank_status.RANKS_PER_S)
        self._digest_at, self._has_digest = float("-inf"), False
        self._replied_at = self._polled_at = time.monotonic()
        self._last_change: dict[int, float] = {}
        """By rank: when its heartbeat was last seen to change."""
        self._syncs = self._polls = 0
        """The number of the last sync with the store that has begun, and of the last one that read the statuses."""
        self._watched: frozenset[int] = frozenset()
        self._polled = threading.Condition()
        self._poll_requested, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="argosy-heartbeat", daemon=True)
        if store is not None:
            self.unconnected = set(range(size)) - {rank}
            # A separate connection: waiting for a key blocks all other requests on the same connection.
            self._store = store.clone()  # type: ignore[attr-defined]  # not in the stubs
            self._sync(reading=False)
            self._thread.start()

    @property
    def status_age_s(self) -> float:
        """How old a status can be when a poll returns it: it is published each second, and a digest has its period."""
        return _PERIOD_S + (self._digest_period_s if self.uses_digest else 0.0)

    def poll(self, timeout_s: float = _PERIOD_S, watched: Iterable[int] = ()) -> dict[int, RankStatus]:
        """Read the statuses of others from the store; if it does not reply in time, give the last known ones.

        `watched`: connected ranks whose status is read also if the digest does not list them.
        """
        with self._polled:
            # A sync in progress may have read the statuses already: wait for one that begins after this call.
            begun = self._syncs
            self._watched = frozenset(watched) - {self.rank}
            self._poll_requested.set()
            self._polled.wait_for(lambda: self.store_lost or self._polls > begun, timeout_s)
            return dict(self.statuses)

    def behind(self, ranks: Iterable[int], group: str, number: int) -> list[int]:
        """Those of the ranks that, as of the last poll, have not started collective `number` of the group."""
        with self._polled:
            started = {rank: status.started.get(group, 0) for rank, status in self.statuses.items()}
            return [
                rank
                for rank in ranks
                if rank != self.rank and (rank in self.unconnected or started.get(rank, number) < number)
            ]

    def unresponsive(self, before: dict[int, RankStatus]) -> list[int]:
        """The ranks that have not exited and have sent no heartbeat since `before`, the result of an earlier poll."""
        with self._polled:
            if self.uses_digest and self.rank != 0:
                return list(self._unresponsive)
            return [
                rank
                for rank, status in self.statuses.items()
                if not status.outcome and rank in before and status.heartbeat == before[rank].heartbeat
            ]

    def store_unresponsive_s(self) -> float:
        """For how long the store has not replied."""
        return time.monotonic() - self._replied_at

    def unresponsive_s(self, rank: int) -> float:
        """For how long, as of the last poll, the heartbeat of the rank has not changed."""
        return self._polled_at - self._last_change.get(rank, self._polled_at)

    def finish(self, outcome: str) -> None:
        """Publish, once, how this process ends. Rank 0 keeps the store open until the others have finished too."""
        is_forked_child = os.getpid() != self._pid  # its exit is not the exit of the rank
        if self.store_lost or self.local.outcome or is_forked_child:
            return
        self.local.outcome = outcome
        self._stop.set()
        self._poll_requested.set()
        self._thread.join(timeout=2 * _PERIOD_S)  # bounded: a stopped store must not block the exit
        if self.rank == 0:
            self._linger()

    def _linger(self) -> None:
        """Keep the store open for ranks that have yet to read that this rank has finished, and after which step."""
        deadline = time.monotonic() + _LINGER_S[self.local.outcome == "done"]
        while not self.store_lost and time.monotonic() < deadline:
            self._sync(reading=True)
            others = self.statuses.items()
            if all(status.outcome or self.unresponsive_s(rank) > 3 * _PERIOD_S for rank, status in others):
                return
            time.sleep(0.02)

    def _run(self) -> None:
        while not (self._stop.is_set() or self.store_lost):
            requested = self._poll_requested.wait(_PERIOD_S)
            if requested:  # a request that arrives just after the timeout stays set for the next iteration
                self._poll_requested.clear()
            self._sync(reading=requested)
        if not self.store_lost and self.uses_digest:
            self._request(lambda: rank_status.publish_failure(self._store, self.rank, self.local))

    def _sync(self, reading: bool) -> None:
        """Publish the status of this rank; if `reading`, fetch those of the others."""
        with self._polled:
            self._syncs += 1
            number = self._syncs
        self.local.heartbeat += 1
        is_digest_due = (
            self.uses_digest
            and self.rank == 0
            and time.monotonic() - self._digest_at >= self._digest_period_s
        )
        try:
            rank_status.publish(self._store, self.rank, self.local)
            fetched = self._fetch() if reading or is_digest_due else None
        except RuntimeError:  # raised by torch.distributed when the connection is lost
            self._note_store_lost()
            return
        self._replied_at = time.monotonic()
        if fetched is not None:
            self._update(fetched, number)
        if fetched is not None and is_digest_due:
            self._digest_at = time.monotonic()
            self._request(lambda: self._publish_digest(fetched))

    def _request(self, request: Callable[[], None]) -> None:
        try:
            request()
        except RuntimeError:
            self._note_store_lost()

    def _note_store_lost(self) -> None:
        with self._polled:
            self.store_lost = True
            self._polled.notify_all()

    def _fetch(self) -> StatusDigest:
        others = [rank for rank in range(self.size) if rank != self.rank]
        if not self.uses_digest or self.rank == 0:
            return rank_status.read_statuses(self._store, others, self.statuses)
        self._has_digest = self._has_digest or rank_status.has_digest(self._store)
        if not self._has_digest:
            return StatusDigest()
        digest = rank_status.read_digest(self._store, self._watched)
        digest.statuses.pop(self.rank, None)
        return digest

    def _publish_digest(self, every: StatusDigest) -> None:
        silent = [r for r in every.statuses if self.unresponsive_s(r) > rank_status.UNRESPONSIVE_S]
        every = StatusDigest({0: self.local, **every.statuses}, every.unconnected)
        rank_status.publish_digest(self._store, rank_status.condense(every, silent))

    def _update(self, fetched: StatusDigest, number: int) -> None:
        with self._polled:
            for rank, status in fetched.statuses.items():
                if rank not in self.statuses or status.heartbeat != self.statuses[rank].heartbeat:
                    self._last_change[rank] = self._replied_at
            self.statuses = fetched.statuses
            self.unconnected = set(fetched.unconnected) - {self.rank}
            self._unresponsive = fetched.unresponsive
            self._polled_at = self._replied_at
            self._polls = number
            self._polled.notify_all()


def check_peer(monitor: RankMonitor, rank: int, here: str, waited_s: float, timeouts: Timeouts) -> None:
    """Raise if `rank` has exited, is deadlocked with this rank or has exceeded a timeout, and so will not join `here`.

    Uses the statuses of the last `monitor.poll`.
    """
    status = monitor.statuses.get(rank)
    if not monitor.store_lost and status is not None and status.outcome:
        raise exited_error(monitor, rank, here, status)
    check_store(monitor, here, timeouts)
    if status is not None:
        _check_connected_peer(monitor, rank, here, waited_s, timeouts, status)
    elif rank in monitor.unconnected and waited_s > timeouts.connect_timeout_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not connected after {waited_s:.0f} s; check that its process was started, "
            "and see its log. ARGOSY_CONNECT_TIMEOUT_S gives it more time",
            *((rank,), "late"),
        )


def check_store(monitor: RankMonitor, here: str, timeouts: Timeouts) -> None:
    """Raise if the store is gone, or has not replied for too long."""
    if monitor.store_lost:
        raise store_lost_error(here)
    if (silence_s := monitor.store_unresponsive_s()) > timeouts.heartbeat_timeout_s:
        raise CollectiveError(
            f"{here}: rank 0, which hosts the job's store, has not replied for {silence_s:.0f} s; {_STOPPED}",
            *((0,), "unresponsive"),
        )


def _check_connected_peer(
    monitor: RankMonitor, rank: int, here: str, waited_s: float, timeouts: Timeouts, status: RankStatus
) -> None:
    silence_s = monitor.unresponsive_s(rank)
    # From then on the status describes a time after this wait began.
    fresh_s = monitor.status_age_s + 1.0
    if waited_s > fresh_s and silence_s < fresh_s and _waits_for_this_rank(monitor, status):
        raise CollectiveError(
            f"{here}: deadlock: rank {rank} waits in {status.waiting} after {status.step} steps, and this rank has "
            f"done {monitor.local.step}: each waits for the other. All ranks must run the same steps: give "
            "them equally many batches, and call collective functions on all ranks"
        )
    if silence_s > timeouts.heartbeat_timeout_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not joined and has sent no heartbeat for {silence_s:.0f} s (it had done "
            f"{status.step} steps); {_STOPPED}",
            *((rank,), "unresponsive"),
        )
    if waited_s > timeouts.collective_timeout_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not joined after {waited_s:.0f} s; it is alive and has done {status.step} "
            "steps. Give it more time with ARGOSY_COLLECTIVE_TIMEOUT_S or fleetrun --timeout, or see what it does "
            "instead: py-spy dump --pid …",
            *((rank,), "late"),
        )


def _waits_for_this_rank(monitor: RankMonitor, other: RankStatus) -> bool:
    """True if the other rank waits for a collective that this rank has not started."""
    if not other.waiting or monitor.rank not in range(*other.waiting_for):
        return False
    group, _, number = other.waiting.split(" ", 1)[0].partition("#")
    return monitor.local.started.get(group, 0) < int(number)


def exited_error(monitor: RankMonitor, rank: int, here: str, status: RankStatus) -> CollectiveError:
    """The error for a rank that has published how its process ended."""
    if status.outcome != "done":
        failed = f"{here}: rank {rank} failed after {status.step} steps: {status.outcome}"
        return PeerLostError(failed, (rank,), "failed")
    return CollectiveError(  # not a PeerLostError: that rank did not fail
        f"{here}: rank {rank} exited without error after {status.step} steps, while this rank is in step "
        f"{monitor.local.step + 1}: it ran out of data, or this rank ran the program more often. Give every rank "
        "equally many batches (io.DistributedBatchSampler, reader.shard, drop_last=True), and evaluate with "
        "program.clone(for_test=True)",
        *((rank,), "left"),
    )


def store_lost_error(here: str) -> PeerLostError:
    """The error for a lost rank 0; the statuses of the other ranks are lost with its store."""
    message = f"{here}: rank 0, which hosts the job's store, has exited; see its log for the reason"
    return PeerLostError(message, (0,), "lost")
