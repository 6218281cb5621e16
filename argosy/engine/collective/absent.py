"""What to say about a rank that others wait for: nothing yet, or that it will not come, and why."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

from argosy.engine.collective.watch import Record, Watch
from argosy.engine.errors import CollectiveError, PeerLostError

_SURE_AFTER_S = 2.0
"""A rank's record is at most a second old: after two, what it says is of the time since we wait."""

_STOPPED = (
    "it is stopped, or its host cannot be reached. Look at its process; ARGOSY_SILENT_S gives it more time"
)


@dataclass(frozen=True)
class Patience:
    """How long a collective waits for the ranks that have not joined."""

    timeout_s: float = 1800.0
    """For a rank that is alive and busy with something else."""
    silent_s: float = 60.0
    """For a rank that gives no sign of life."""
    connect_s: float = 300.0
    """For a rank that has never been there."""


def look_after(watch: Watch, rank: int, here: str, waited_s: float, patience: Patience) -> None:
    """Raise if it is certain, or has become likely enough, that `rank` will not join in `here`.

    Judges what `watch.look` has brought last.
    """
    if watch.store_is_gone:
        raise store_is_gone(here)
    record = watch.records.get(rank)
    if record is not None and record.end:
        raise ended(watch, rank, here, record)
    if watch.deaf_s() > patience.silent_s:
        raise CollectiveError(
            f"{here}: rank 0, which holds the job's store, gives no sign of life since {watch.deaf_s():.0f} s; "
            f"{_STOPPED}"
        )
    if record is not None:
        _look_at(watch, rank, here, waited_s, patience, record)
    elif waited_s > patience.connect_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not connected after {waited_s:.0f} s; check that its process was started, "
            "and see its log. ARGOSY_CONNECT_TIMEOUT_S gives it more time"
        )


def _look_at(watch: Watch, rank: int, here: str, waited_s: float, patience: Patience, record: Record) -> None:
    silent_s = watch.silent_s(rank)
    if waited_s > _SURE_AFTER_S and silent_s < _SURE_AFTER_S and _waits_for_us(watch, record):
        raise CollectiveError(
            f"{here}: rank {rank} will not join, it waits in {record.waiting} after {record.step} steps, and this "
            f"rank has done {watch.own.step}: each waits for the other. All ranks must run the same steps: give "
            "them equally many batches, and call on all of them what all of them must call"
        )
    if silent_s > patience.silent_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not joined and gives no sign of life since {silent_s:.0f} s (it had done "
            f"{record.step} steps); {_STOPPED}"
        )
    if waited_s > patience.timeout_s:
        raise CollectiveError(
            f"{here}: rank {rank} has not joined after {waited_s:.0f} s; it is alive and has done {record.step} "
            "steps. Give it more time with ARGOSY_COLLECTIVE_TIMEOUT_S or fleetrun --timeout, or see what it does "
            "instead: py-spy dump --pid …"
        )


def ended(watch: Watch, rank: int, here: str, record: Record) -> CollectiveError:
    """The error for a rank whose process has told that it ends."""
    if record.end != "done":
        return PeerLostError(f"{here}: rank {rank} failed after {record.step} steps: {record.end}")
    return CollectiveError(  # no PeerLostError: nothing failed over there, so this is the cause
        f"{here}: rank {rank} ended without error after {record.step} steps, while this rank is in step "
        f"{watch.own.step + 1}: it ran out of data, or this rank ran the program more often. Give every rank equally "
        "many batches (io.DistributedBatchSampler, reader.shard, drop_last=True), and evaluate with "
        "program.clone(for_test=True)"
    )


def store_is_gone(here: str) -> PeerLostError:
    """The error for a lost rank 0: with it goes what the others would have told."""
    return PeerLostError(f"{here}: rank 0, which holds the job's store, is gone; see its log for the reason")


def _waits_for_us(watch: Watch, other: Record) -> bool:
    """True if the other rank waits for a collective that this rank has not started."""
    if not other.waiting or watch.rank not in other.waiting_for:
        return False
    group, _, number = other.waiting.split(" ", 1)[0].partition("#")
    return watch.own.started.get(group, 0) < int(number)
