"""Bugs that are planted in the parameter server, one at a time: the simulation has to find each of them.

python -m tests.simulation.mutants            tries all, and prints the seed that found each
python -m tests.simulation.mutants barrier    those whose name contains a word

A mutant replaces one function by one with a bug, and names the scenarios that its bug matters in.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from argosy.engine.log import logger
from argosy.engine.ps.rpc.client import ServerLink
from argosy.engine.ps.rpc.server import Entry, RpcServer
from argosy.engine.ps.rpc.wire import Header, decode_tensors
from argosy.engine.ps.server import wal
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.server.snapshots import Snapshots
from argosy.engine.ps.server.state import AppliedPushes, ServerState
from argosy.engine.ps.server.sync import Round
from argosy.engine.ps.server.trainer_collectives import AllGathers
from argosy.engine.ps.server.wal import GroupCommit, LogRecord, WriteAheadLog
from argosy.engine.ps.table.persistence import Segments
from argosy.engine.ps.trainer.connection import TrainerConnection
from argosy.engine.ps.trainer.trainer import TrainerGroup
from tests.simulation.disk import SimulatedDisk, _SimulatedFile
from tests.simulation.job import simulate
from tests.simulation.network import Faults

KILLS = {"kinds": ("kill server", "kill at disk") * 3, "every_s": 0.005}
TRAINER_KILLS = {"kinds": ("kill trainer", "kill server") * 3, "every_s": 0.005}
ONE_BY_ONE = {"mode": "async"}
MOST_SEEDS = 100
LAST_FOUND = {
    "acknowledge before logging": 4,
    "log after the lock": 3,
    "leave torn writes in the log": 19,
    "half_async: steps are not logged": 12,
    "results of barriers are not logged": 30,
    "disk: names are not synced": 13,
    "disk: the last log is not synced at a restart": 52,
    "copies are taken without locks": 20,
    "numbers are not in snapshots": 8,
    "values are read before they are logged": 76,
    "a barrier ends twice": 7,
    "away for barriers that are complete": 30,
    "barriers of another job count": 12,
}
"""Seeds that found a bug when this was written; seed 0 or 1 finds the others. If the servers change, another seed may
find it: the search then takes longer, and `python -m tests.simulation.mutants` prints that seed."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    owner: Any
    attribute: str
    bug: Any
    """The attribute's replacement; a function of the original if `wraps`."""
    scenario: Mapping[str, Any] = field(default_factory=dict)
    wraps: bool = True

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        original = self.owner.__dict__[self.attribute]
        function = original.__func__ if isinstance(original, staticmethod | classmethod) else original
        bug = self.bug(function) if self.wraps else self.bug
        setattr(self.owner, self.attribute, staticmethod(bug) if isinstance(original, staticmethod) else bug)
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


def first_detection(mutant: Mutant, seeds: int = MOST_SEEDS) -> tuple[int, str] | None:
    """A seed that finds the bug, and what the checker says of it; None if no seed does.

    The seed of `LAST_FOUND` is tried first. The same seed without the bug must be right: it is the bug that is found,
    not the fault.
    """
    likely = LAST_FOUND.get(mutant.name, 0)
    for seed in (likely, *(seed for seed in range(seeds) if seed != likely)):
        with mutant.planted():
            outcome = simulate(seed, **mutant.scenario)
        if outcome.violations:
            clean = simulate(seed, **mutant.scenario)
            assert not clean.violations, (mutant.name, seed, clean.violations[:3])
            return seed, outcome.violations[0]
    return None


# --- logging --------------------------------------------------------------------------------------------


def acknowledge_before_logging(original: Callable[..., None]) -> Callable[..., None]:
    def push(self: ServerState, push: Any, request: Any, answer: Callable[[], None]) -> None:
        answer()
        original(self, push, request, lambda: None)

    return push


def log_after_the_lock(original: Callable[..., None]) -> Callable[..., None]:
    """The record is queued when others may have changed the same block already."""

    def push(self: ServerState, push: Any, request: Any, answer: Callable[[], None]) -> None:
        with contextlib.ExitStack() as locks:
            for name in sorted(push.names):
                locks.enter_context(self._locks[name])
            is_new = not self.applied.has(request)
            if is_new:
                push.apply(self)
                self.applied.add(request.trainer, request.client, request.id, request.acked_below)
        if is_new:
            self.commit.add(push.encode(request, self.steps_reported), lambda error: answer())
            self.commit.flush()
        else:
            answer()

    return push


def swallow_write_errors(original: Callable[..., Any]) -> Callable[..., Any]:
    def tries(self: GroupCommit, write: Any, parts: Any) -> None:
        with contextlib.suppress(OSError):
            write(parts)

    return tries


def write_batches_backwards(original: Callable[..., Any]) -> Callable[..., Any]:
    def next_batch(self: GroupCommit) -> Any:
        return original(self)[::-1]

    return next_batch


def leave_torn_writes(original: Callable[..., None]) -> Callable[..., None]:
    def append(self: _SimulatedFile, parts: Any) -> None:
        try:
            self._disk.append_to(self._file, parts)
        finally:
            self.size = len(self._file.data)

    return append


def skip_log(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *_, **__: None


def never_sync(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: WriteAheadLog, directory: Path, disk: Any = None, syncs: bool = False) -> None:
        original(self, directory, disk, syncs=False)

    return init


# --- reading the log again ------------------------------------------------------------------------------


def read_without_checksums(path: Path, data: memoryview, at: int, number: int) -> Any:
    start = at + wal._HEAD_BYTES
    if len(data) < start:
        return None
    _, header_length, length, _ = wal._FIELDS.unpack_from(data, at)
    if start + length > len(data):
        return None
    record = msgspec.msgpack.decode(data[start : start + header_length], type=LogRecord)
    frames, place = [], start + header_length
    for size in record.sizes:
        frames.append(bytearray(data[place : place + size]))
        place += size
    return wal.LogEntry(record, decode_tensors(record.tensors, frames), start + length)


def truncate_at_corruption(original: Callable[..., Any]) -> Callable[..., Any]:
    def record(*arguments: Any) -> Any:
        try:
            return original(*arguments)
        except Exception:
            return None

    return record


def keep_unfinished_record(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, path, end: None


def leave_the_last_log_unsynced(original: Callable[..., None]) -> Callable[..., None]:
    def cut_off(self: WriteAheadLog, path: Path, end: int) -> None:
        syncs, self._syncs = self._syncs, False
        try:
            original(self, path, end)
        finally:
            self._syncs = syncs

    return cut_off


def forget_logged_numbers(original: Callable[..., int]) -> Callable[..., int]:
    def repeat(self: Snapshots, record: LogRecord, tensors: list[Tensor], step: int) -> int:
        applied = self._state.applied
        add = applied.add
        applied.add = lambda *_: None  # type: ignore[method-assign]
        try:
            return original(self, record, tensors, step)
        finally:
            applied.add = add  # type: ignore[method-assign]

    return repeat


def skip_last_log(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reads the log that the manifest names, and not those that follow it."""

    def records(self: WriteAheadLog) -> Any:
        numbers = self._numbers
        assert self.manifest is not None, "there is a snapshot"
        first = self.manifest["log"]
        self._numbers = lambda: [n for n in numbers() if n <= first]  # type: ignore[method-assign]
        try:
            yield from original(self)
        finally:
            self._numbers = numbers  # type: ignore[method-assign]

    return records


# --- snapshots ------------------------------------------------------------------------------------------


def write_manifest_first(original: Callable[..., None]) -> Callable[..., None]:
    def snapshot(self: WriteAheadLog, log: int, state: Any, more: dict[str, Any]) -> None:
        write = self.disk.write
        waiting: list[tuple[Path, Any]] = []

        def late(path: Path, parts: Any) -> None:
            if path.name == "manifest.json":
                write(path, parts)
                for one in waiting:
                    write(*one)
            else:
                waiting.append((path, list(parts)))

        self.disk.write = late  # type: ignore[method-assign]
        try:
            original(self, log, state, more)
        finally:
            del self.disk.write  # type: ignore[method-assign]

    return snapshot


def remove_logs_first(original: Callable[..., None]) -> Callable[..., None]:
    def snapshot(self: WriteAheadLog, log: int, state: Any, more: dict[str, Any]) -> None:
        for name in self.disk.names(self.directory):
            if name.startswith("log.") and int(name[4:]) < log:
                self.disk.remove(self.directory / name)
        original(self, log, state, more)

    return snapshot


def remove_named_segments(original: Callable[..., None]) -> Callable[..., None]:
    def remove_others(self: Segments, folder: Path, named: Any) -> None:
        original(self, folder, ())

    return remove_others


def copy_without_locks(original: Callable[..., None]) -> Callable[..., None]:
    def capture(self: Snapshots, step: int) -> None:
        locks = self._state._locks
        self._state._locks = dict.fromkeys(locks, contextlib.nullcontext())  # type: ignore[arg-type]
        try:
            original(self, step)
        finally:
            self._state._locks = locks

    return capture


def forget_numbers_in_snapshots(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: []


def skip_rows_that_changed(original: Callable[..., Any]) -> Callable[..., Any]:
    """A segment lacks its last row."""

    def write(self: Segments, folder: Path, parts: Any, clock: int, is_whole: bool) -> None:
        original(self, folder, [tuple(t[:-1] for t in part) for part in parts], clock, is_whole)

    return write


def state_without_checksum(original: Callable[..., Any]) -> Callable[..., Any]:
    def state(self: WriteAheadLog) -> Any:
        assert self.manifest is not None, "there is a snapshot"
        data = self.disk.read(self.directory / self.manifest["state"])
        self.manifest["state_checksum"] = wal.checksum(data)
        return original(self)

    return state


# --- answers --------------------------------------------------------------------------------------------


def read_before_logging(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, names, read, answer: answer(read())


def apply_again(original: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, request: False


def forget_answers(original: Callable[..., None]) -> Callable[..., None]:
    def finish(self: RpcServer, entry: Entry, frames: Any, *, keep: bool, rejected: bool = False) -> None:
        original(self, entry, frames, keep=False, rejected=rejected)
        if keep:
            entry.reply = []

    return finish


def send_again_as_new(original: Callable[..., bool]) -> Callable[..., bool]:
    """The client gives a request another number when it sends it again."""

    def note_incarnation(self: ServerLink, incarnation: str) -> None:
        if self.incarnation and incarnation != self.incarnation:
            for reply in list(self.pending.values()):
                if reply.is_sent and reply.kind.startswith("push"):
                    header = Header(**{f: getattr(_header(reply), f) for f in _FIELDS})
                    header.id = self.next_id
                    self.next_id += 1
                    del self.pending[reply.id]
                    reply.id = header.id
                    reply.frames = [msgspec.msgpack.encode(header), *reply.frames[1:]]
                    self.pending[reply.id] = reply
                    reply.due = "send"
                    self._due.append(reply)
        original(self, incarnation)

    return note_incarnation


_FIELDS = ("version", "kind", "id", "client", "who", "trainer", "acked_below", "meta", "tensors", "server")


def _header(reply: Any) -> Any:
    return msgspec.msgpack.decode(bytes(reply.frames[0]), type=Header)


# --- steps and barriers ---------------------------------------------------------------------------------


def do_not_wait_for_all(original: Callable[..., bool]) -> Callable[..., bool]:
    def is_ready(self: Round, live: Any) -> bool:
        return any(one.is_complete for one in self._by_trainer.values())

    return is_ready


def end_barrier_early(original: Callable[..., None]) -> Callable[..., None]:
    def check(self: AllGathers) -> None:
        expected, self._expected = self._expected, lambda key: sorted(expected(key))[:-1]
        try:
            original(self)
        finally:
            self._expected = expected

    return check


def end_barrier_twice(original: Callable[..., None]) -> Callable[..., None]:
    def end(self: AllGathers, key: Any, result: Any) -> None:
        gather = self._open.get(key)
        if gather is None:
            return
        if self._on_complete is not None:
            self._on_complete(key, result)
        with self._lock:
            self._open.pop(key, None)
            self._done.add(key, result)
        for on_gathered, _ in gather.waiting:
            on_gathered(result)

    return end


def keep_contribution_of_dead_process(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, trainer, client="": original(self, trainer)


def be_away_for_complete_barriers(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, name, number: None


def pull_before_own_push(original: Callable[..., None]) -> Callable[..., None]:
    """Does not wait for the answers of pushes."""

    def wait_acked(self: TrainerConnection) -> None:
        if self.plan.mode in ("sync", "geo"):
            original(self)
        else:
            self.in_flight.pending = []

    return wait_acked


# --- jobs -----------------------------------------------------------------------------------------------


def skip_agreement(original: Callable[..., Any]) -> Callable[..., Any]:
    def agreed(self: Service, done: int | None) -> int | None:
        self.snapshots.begin_job(done or 0)
        return done

    return agreed


def keep_barriers_of_other_job(original: Callable[..., None]) -> Callable[..., None]:
    def begin_job(self: Snapshots, step: int) -> None:
        results = self._state.results
        original(self, step)
        self._state.results = results

    return begin_job


def values_before_first_snapshot(original: Callable[..., None]) -> Callable[..., None]:
    def initialise(self: Snapshots, values: Mapping[str, Tensor], shared: dict[str, Tensor]) -> None:
        self._state.is_initialised = True
        original(self, values, shared)

    return initialise


SYNC, HALF, ROT = {"mode": "sync"}, {"mode": "half_async"}, {"kinds": ("rot",) * 5, "every_s": 0.05}
SNAPSHOTS = {"log_bytes": 1000, "tick_s": 0.002, "disk_s": 0.002}
SLOW = {
    "faults": Faults(latency_s=0.02, slow=0.02, reordered=0.3),
    "kinds": ("kill server",) * 6,
    "every_s": 0.2,
}
FULL = {"kinds": ("full disk", "kill server") * 3, "every_s": 0.01}
JOBS = {"kinds": ("kill job",) * 4, "every_s": 0.05, "trainers": 2, "servers": 2}
POWER = {"durability": "disk", "kinds": ("fail power",) * 5, "every_s": 0.005}

MUTANTS = (
    Mutant("acknowledge before logging", ServerState, "push", acknowledge_before_logging, ONE_BY_ONE | FULL),
    Mutant("log after the lock", ServerState, "push", log_after_the_lock, ONE_BY_ONE | KILLS | {"trainers": 3}),
    Mutant("acknowledge what could not be written", GroupCommit, "_try", swallow_write_errors,
           ONE_BY_ONE | FULL),
    Mutant("write batches backwards", GroupCommit, "_next_batch", write_batches_backwards,
           ONE_BY_ONE | KILLS | {"trainers": 3}),
    Mutant("leave torn writes in the log", _SimulatedFile, "append", leave_torn_writes,
           FULL | {"disk_s": 0.002, "every_s": 0.05}),
    Mutant("sync: steps are not logged", ServerState, "record_step", skip_log, SYNC | KILLS),
    Mutant("half_async: steps are not logged", ServerState, "record_step_done", skip_log, HALF | SLOW),
    Mutant("results of barriers are not logged", ServerState, "record_all_gather", skip_log, TRAINER_KILLS),
    Mutant("disk: never fsync", WriteAheadLog, "__init__", never_sync, ONE_BY_ONE | POWER),
    Mutant("disk: names are not synced", SimulatedDisk, "sync_names", skip_log, POWER | SNAPSHOTS),
    Mutant("disk: the last log is not synced at a restart", WriteAheadLog, "_truncate_torn_record",
           leave_the_last_log_unsynced,
           ONE_BY_ONE | {"durability": "disk", "kinds": ("kill at disk", "fail power") * 4, "every_s": 0.02}),
    Mutant("records without checksums", wal, "_read_record", read_without_checksums, ROT, wraps=False),
    Mutant("corruption ends the log", wal, "_read_record", truncate_at_corruption, ROT),
    Mutant("an unfinished record stays", WriteAheadLog, "_truncate_torn_record", keep_unfinished_record, KILLS),
    Mutant("numbers in the log are forgotten", Snapshots, "_replay", forget_logged_numbers, ONE_BY_ONE | KILLS),
    Mutant("only the first log is read", WriteAheadLog, "records", skip_last_log, KILLS | SNAPSHOTS),
    Mutant("the manifest is written first", WriteAheadLog, "snapshot", write_manifest_first, KILLS | SNAPSHOTS),
    Mutant("old logs are removed first", WriteAheadLog, "snapshot", remove_logs_first,
           {"kinds": ("full disk", "kill at disk") * 3, "every_s": 0.01} | SNAPSHOTS),
    Mutant("named segments are removed", Segments, "remove_others", remove_named_segments,
           FULL | SNAPSHOTS),
    Mutant("copies are taken without locks", Snapshots, "capture", copy_without_locks,
           ONE_BY_ONE | KILLS | SNAPSHOTS | {"preempts": 0.5, "trainers": 3}),
    Mutant("numbers are not in snapshots", AppliedPushes, "to_json", forget_numbers_in_snapshots,
           ONE_BY_ONE | SNAPSHOTS | {"disk_s": 0.0, "faults": Faults(latency_s=0.05), "trainers": 3}
           | {"kinds": ("kill server",) * 6, "every_s": 0.3}),
    Mutant("a segment lacks a row", Segments, "write", skip_rows_that_changed, KILLS | SNAPSHOTS),
    Mutant("the state has no checksum", WriteAheadLog, "state", state_without_checksum, ROT | SNAPSHOTS),
    Mutant("values are read before they are logged", ServerState, "read", read_before_logging,
           ONE_BY_ONE | {"kinds": ("kill at disk",) * 6, "disk_s": 0.01, "every_s": 0.05, "trainers": 3}),
    Mutant("pushes are applied again", AppliedPushes, "has", apply_again, ONE_BY_ONE | KILLS),
    Mutant("replies are not kept", RpcServer, "finish", forget_answers, {"kinds": ("break",) * 6, "every_s": 0.005}),
    Mutant("repeated requests have new numbers", ServerLink, "note_incarnation", send_again_as_new, ONE_BY_ONE | KILLS),
    Mutant("a step does not wait for all", Round, "is_ready", do_not_wait_for_all, SYNC | {"trainers": 3}),
    Mutant("a barrier ends early", AllGathers, "check", end_barrier_early, {"trainers": 2}),
    Mutant("a barrier ends twice", AllGathers, "complete", end_barrier_twice,
           {"trainers": 3, "preempts": 0.5, "disk_s": 0.01}),
    Mutant("what a dead process sent stays", Round, "discard", keep_contribution_of_dead_process,
           SYNC | SLOW | {"servers": 2, "trainers": 3, "kinds": ("pause trainer", "kill trainer", "kill server") * 3}),
    Mutant("away for barriers that are complete", TrainerGroup, "_result", be_away_for_complete_barriers,
           SYNC | TRAINER_KILLS | {"trainers": 3, "servers": 2}),
    Mutant("a trainer does not wait for its pushes", TrainerConnection, "wait_acked", pull_before_own_push, ONE_BY_ONE),
    Mutant("servers do not agree on a step", Service, "_agreed", skip_agreement,
           SYNC | JOBS | {"kinds": ("cut server", "kill job") * 3, "every_s": 0.02, "faults": Faults(latency_s=2e-3)}),
    Mutant("barriers of another job count", Snapshots, "begin_job", keep_barriers_of_other_job,
           JOBS | {"every_s": 0.02}),
    Mutant("values before the first snapshot", Snapshots, "initialise", values_before_first_snapshot,
           {"is_initialised_by_trainer": True, "trainers": 3, "disk_s": 0.05} | ONE_BY_ONE),
)  # fmt: skip


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        arguments = [sys.executable, "-m", "tests.simulation.mutants", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})
    logger.handlers = [logging.NullHandler()]
    tried = [m for m in MUTANTS if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    missed = 0
    for mutant in tried:
        began = time.monotonic()
        detection = first_detection(mutant)
        missed += detection is None
        text = "NOT FOUND" if detection is None else f"seed {detection[0]:3}  {detection[1][:90]}"
        print(f"{mutant.name:45} {time.monotonic() - began:6.1f} s  {text}", flush=True)
    print(f"{len(tried)} mutants, {missed} not found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
