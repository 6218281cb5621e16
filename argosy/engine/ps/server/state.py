"""The state of a server: blocks, tables, norms, membership; durable with a write-ahead log and snapshots."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from torch import Tensor

from argosy.engine.disk import Disk
from argosy.engine.errors import ArgosyError, ConfigError
from argosy.engine.log import logger
from argosy.engine.ps.job_plan import JobPlan
from argosy.engine.ps.rpc.request import Request
from argosy.engine.ps.server.all_gathers import CollectiveKey, Gathered, GatherResults
from argosy.engine.ps.server.group_commit import Done, GroupCommit
from argosy.engine.ps.server.membership import Membership
from argosy.engine.ps.server.norms import Norms
from argosy.engine.ps.server.updates import AppliedPushes, PushUpdate, SyncUpdate
from argosy.engine.ps.server.wal import LogRecord, WriteAheadLog, encode_record
from argosy.engine.ps.table.table import SparseTable, TableSnapshot

R = TypeVar("R")
_RETRY_S, _RETRY_FOR_S = 0.5, 30.0
DURABILITIES = ("log", "disk", "snapshot")

_LOG_BYTES, _LOG_PER_STATE = 64 << 20, 4
"""A snapshot is due when the log is larger than the first, and than this multiple of the dense state."""
_SHARED, _NORM, _GATHERED = "@shared@", "@norm@", "@gathered@"
"""Prefixes of the names of values in a snapshot that are not variables of the program."""


class Updater(Protocol):
    """Holds the blocks of a server, and updates them with the optimizer."""

    def values(self) -> Mapping[str, Tensor]:
        """The blocks by name, to read."""

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """One step of the optimizer with the mean gradients of all blocks."""

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        """One step of the optimizer on one block."""

    def initialised(self) -> None:
        """Called when the blocks have their initial values."""

    def origins(self) -> dict[str, list[Any]]:
        """For each shard of a variable of the whole program: [name of the variable, first row]."""

    def state(self) -> Mapping[str, Tensor]:
        """The state to persist: blocks and optimizer state."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state`."""


class ServerState:
    """The state that steps and pushes change."""

    def __init__(
        self,
        plan: JobPlan,
        updater: Updater,
        membership: Membership,
        norms: Norms,
        directory: Path | None,
        durability: str = "log",
        job: str = "",
        disk: Disk | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        """`durability`: "log" (a push is in the log before it is acknowledged), "disk" (and on the disk), "snapshot".

        `job`: the name of the job; it starts from the state that another job has left. `failed` is called with the
        reason if the log cannot be written.
        """
        if durability not in DURABILITIES:
            raise ConfigError(f"durability {durability!r}: use one of {', '.join(DURABILITIES)}")
        self.updater, self.durability, self._job = updater, durability, job
        self.is_initialised = not plan.initialised_by_trainer
        self.is_untouched = True
        """False if it was restored with changes since the initial values."""
        self.shared_init: dict[str, Tensor] = {}
        """Initial values of variables that every trainer has for itself."""
        self.results = GatherResults()
        """Results of all-gathers; logged before any trainer gets them."""
        self.applied = AppliedPushes()
        self.loads = 0
        """How often the trainers of this job have loaded a checkpoint."""
        self.steps_reported = 0
        """async: how many steps all trainers have done, as far as they have reported; half_async: the last one done."""
        self._membership, self._norms = membership, norms
        self._wal = WriteAheadLog(directory, disk, syncs=durability == "disk") if directory else None
        self._logs_pushes = durability != "snapshot" and plan.mode != "sync"
        self._commit = GroupCommit(
            self._wal.append if self._wal else lambda _: None,
            lambda error: failed(f"the log cannot be written: {error}") if failed else None,
        )
        self._locks = {
            name: threading.Lock()
            for name in sorted([*updater.values(), *(table.name for table in plan.tables)])
        }
        """One per block and table: its updates are logged in the order in which they are applied."""
        self._recording = threading.Lock()
        """Held while any other record is queued, and by a snapshot while it copies the state and begins a new log."""
        self._pending_snapshot: _Snapshot | None = None
        """A captured snapshot that is not written yet."""
        self._writing = threading.Lock()
        spills = any(table.memory_rows for table in plan.tables)
        for old in directory.glob("argosy-rows-*") if directory else ():  # of a server that was killed
            shutil.rmtree(old, ignore_errors=True)
        self._spilled = tempfile.TemporaryDirectory(prefix="argosy-rows-", dir=directory) if spills else None
        place = Path(self._spilled.name) if self._spilled else None
        self.tables = {table.name: SparseTable(table, place, disk) for table in plan.tables}

    @property
    def is_restored(self) -> bool:
        """True if the directory has a state to restore."""
        return self._wal is not None and self._wal.manifest is not None

    @property
    def is_of_another_job(self) -> bool:
        """True if the state is of another job."""
        manifest = self._wal.manifest if self._wal else None
        return manifest is not None and bool(self._job) and manifest["job"] != self._job

    def blocks(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The values of these blocks."""
        values = self.updater.values()
        for name in names:
            if name not in values:
                raise ConfigError(
                    f"this server has no block {name!r}; it has {', '.join(sorted(values)) or 'none'}"
                )
        return {name: values[name] for name in names}

    def table(self, name: str) -> SparseTable:
        if name not in self.tables:
            raise ConfigError(f"this server has no table {name!r}; it has {sorted(self.tables) or 'none'}")
        return self.tables[name]

    def initialise(self, values: Mapping[str, Tensor], shared: dict[str, Tensor]) -> None:
        """Set the initial values of the blocks; `shared`: those of variables that every trainer has for itself."""
        self.shared_init = shared
        for name, block in self.blocks(values).items():
            block.copy_(values[name].view_as(block))
        self.updater.initialised()
        # The log starts with a snapshot: no trainer gets values, and pushes, before it is written.
        self._write_first_snapshot()
        self.is_initialised = True

    def _write_first_snapshot(self) -> None:
        """Retry as the log does: a full disk may be cleared."""
        until = time.monotonic() + _RETRY_FOR_S
        while True:
            try:
                self._snapshot_now(0)
            except OSError as e:
                if time.monotonic() > until:
                    raise
                logger.error(
                    "the first snapshot could not be written: %s; retrying for %g s", e, _RETRY_FOR_S
                )
                time.sleep(_RETRY_S)
            else:
                return

    # --- changes --------------------------------------------------------------------------------------

    def apply(self, update: SyncUpdate) -> None:
        """sync: one step with the mean of all trainers."""
        self._norms.begin(update.step, update.norms)
        self.updater.apply(update.gradients, update.rates)
        for name, (ids, rows) in update.rows.items():
            self.tables[name].push(ids, rows, update.row_rates[name])

    def record_step(self, update: SyncUpdate) -> None:
        """sync: log a step that was applied, so that a restarted server can replay it."""
        if self._wal is None:
            return
        meta = {
            "step": update.step,
            "blocks": list(update.gradients),
            "rates": update.rates,
            "tables": list(update.rows),
            "row_rates": update.row_rates,
        }
        rows = [tensor for pair in update.rows.values() for tensor in pair]
        self._append("step", meta, [*update.gradients.values(), *rows, *self._norms.of_step])

    def record_step_done(self, step: int) -> None:
        """half_async: log that all trainers have done a step, whose pushes are in the log."""
        self.steps_reported = max(self.steps_reported, step)
        self._append("step_done", {"step": step}, [])

    def push(self, push: PushUpdate, request: Request, acknowledge: Callable[[], None]) -> None:
        """Apply a push, and call `acknowledge` when it is in the log; a duplicate is only acknowledged.

        The update and its record hold the locks of what they change, so that a replay has the same order.
        """
        parts = push.encode(request, self.steps_reported) if self.keeps_log else []
        with contextlib.ExitStack() as locks:
            for name in sorted(push.names):
                locks.enter_context(self._locks[name])
            if self.applied.has(request):
                parts = []
            else:
                push.apply(self)
                self.applied.add(request.trainer, request.client, request.id, request.acked_below)
                if parts:
                    self._commit.add(parts, _acknowledge_when_logged(request, acknowledge))
        if parts:
            self._commit.flush()
        else:
            acknowledge()

    def read(self, names: Iterable[str], read: Callable[[], R], reply: Callable[[R], None]) -> None:
        """Call `reply` with the result of `read` on these blocks and tables, when all updates in it are in the log.

        Otherwise a trainer could see an update that is lost if this server is killed.
        """
        if not self.keeps_log:
            reply(read())
            return
        with contextlib.ExitStack() as locks:
            for name in sorted(names):
                locks.enter_context(self._locks[name])
            values = read()

        def done(error: Exception | None) -> None:
            if error is None:  # else the server has failed, and rejects all requests
                reply(values)

        self._commit.after(done)

    @property
    def keeps_log(self) -> bool:
        """True if pushes are logged: reads must copy, since later updates are not logged yet."""
        return self._wal is not None and self._logs_pushes

    def record_leave(self, trainer: int) -> None:
        """Log that a trainer leaves."""
        self._append("leave", {"trainer": trainer}, [])

    def record_rejoin(self, trainer: int) -> None:
        """Log that a trainer that had left rejoins."""
        self._append("rejoin", {"trainer": trainer}, [])

    def record_all_gather(self, key: CollectiveKey, result: Gathered) -> None:
        """Log the result of an all-gather before any trainer gets it: all get the same, or none."""
        self.results.add(key, result)
        try:
            self._append(
                "all_gather", _described(key, result), [tensor for tensors in result for tensor in tensors]
            )
        except BaseException:
            self.results.remove(key)
            raise

    def _append(self, kind: str, meta: dict[str, Any], tensors: list[Tensor]) -> None:
        """Log a record, and return when it is written."""
        if self._wal is None or self._wal.manifest is None:
            return
        outcome: SimpleQueue[Exception | None] = SimpleQueue()
        parts = encode_record(kind, meta, tensors)
        with self._recording:
            self._commit.add(parts, outcome.put)
        self._commit.flush()
        if (error := outcome.get()) is not None:
            raise error

    def replace(self, load: Callable[[], None], number: int, step: int) -> None:
        """Replace the state by what `load` loads. Idempotent: `number` counts the loads of the job."""
        with contextlib.ExitStack() as locks:
            for lock in self._locks.values():
                locks.enter_context(lock)
            if number <= self.loads:
                return
            for table in self.tables.values():
                table.clear()
            load()
            self.loads = number
        self.snapshot(step)

    # --- snapshots ------------------------------------------------------------------------------------

    @property
    def is_snapshot_due(self) -> bool:
        """True if the log is so long that a replay would take long."""
        wal = self._wal
        return wal is not None and wal.log_bytes > max(_LOG_BYTES, _LOG_PER_STATE * wal.state_bytes)

    def snapshot(self, step: int) -> None:
        """Write a snapshot, if there is a directory; updates continue meanwhile."""
        if self.is_initialised:
            self._snapshot_now(step)

    def _snapshot_now(self, step: int) -> None:
        self.capture_snapshot(step)
        self.write_snapshot()

    def capture_snapshot(self, step: int) -> None:
        """Copy the state for `write_snapshot`, and begin a new log, which has all changes from now on.

        Fast: it copies the dense state, and the rows that have changed since the last snapshot.
        """
        if self._wal is None:
            return
        logs: SimpleQueue[int] = SimpleQueue()
        outcome: SimpleQueue[Exception | None] = SimpleQueue()
        with contextlib.ExitStack() as locks:
            for lock in [*self._locks.values(), self._recording]:
                locks.enter_context(lock)
            results = self.results.items()
            gathered = [tensor for _, result in results for tensors in result for tensor in tensors]
            state = {
                **self.updater.state(),
                **{f"{_SHARED}{name}": value for name, value in self.shared_init.items()},
                **{f"{_NORM}{number}": norm for number, norm in self._norms.known.items()},
                **{f"{_GATHERED}{place}": tensor for place, tensor in enumerate(gathered)},
            }
            more = {
                "job": self._job,
                "step": step,
                "steps_reported": self.steps_reported,
                "loads": self.loads,
                "left": sorted(self._membership.left),
                "all_gathers": [_described(*result) for result in results],
                "applied": self.applied.to_json(),
            }
            copies = {name: value.detach().clone() for name, value in state.items()}
            tables = {name: table.capture(self._folder_of(table)) for name, table in self.tables.items()}
            wal = self._wal
            self._commit.between(lambda: logs.put(wal.begin_log()), outcome.put)
        self._commit.flush()
        if (error := outcome.get()) is not None:
            raise error
        self._pending_snapshot = _Snapshot(logs.get(), copies, more, tables)

    def write_snapshot(self) -> None:
        """Write the snapshot that was captured last, if it is not written yet."""
        with self._writing:
            snapshot, self._pending_snapshot = self._pending_snapshot, None
            if snapshot is None:
                return
            assert self._wal is not None, "there is a directory for snapshots"
            named = (self._wal.manifest or {}).get("tables", {})
            for name, rows in snapshot.tables.items():
                table = self.tables[name]
                table.write(self._folder_of(table), rows, named.get(name, []))
            tables = {name: self.tables[name].state() for name in snapshot.tables}
            self._wal.snapshot(snapshot.log, snapshot.state, {**snapshot.more, "tables": tables})

    def _folder_of(self, table: SparseTable) -> Path:
        assert self._wal is not None, "there is a directory for snapshots"
        return self._wal.tables / table.spec.file_name

    def restore(self, last: int | None = None) -> int | None:
        """Restore the snapshot and replay the log; returns the last step, None if there is no state.

        `last`: stop the replay after this step.
        """
        if self._wal is None or self._wal.manifest is None:
            self.snapshot(0)
            return None
        manifest, state = self._wal.manifest, self._wal.state()
        if last is not None and manifest["step"] > last:
            raise ConfigError(
                f"{self._wal.directory} starts at step {manifest['step']}, and another server has done only "
                f"{last}: their states are of different jobs, or one is incomplete; start all servers from a saved "
                "model, in another state directory"
            )
        self._load(manifest, state)
        step, count, is_past = int(manifest["step"]), 0, False
        for record, tensors in self._wal.records():  # to the end: it repairs the end of the last log
            is_past |= last is not None and record.kind == "step" and record.meta["step"] > last
            if not is_past:
                count += 1
                step = self._replay(record, tensors, step)
        if not self.is_of_another_job:
            self._membership.live -= self._membership.left
        self.is_untouched = step == count == 0
        logger.warning(
            "recovered to step %d: snapshot of step %d and %d log records", step, manifest["step"], count
        )
        return step

    def begin_job(self, step: int) -> None:
        """Take over the state of another job: reset what concerns that job's processes, and write a snapshot."""
        self.results, self._membership.left, self.loads = GatherResults(), set(), 0
        self.applied.load([])
        self._norms.known = {}
        self.snapshot(step)

    def _load(self, manifest: dict[str, Any], state: dict[str, Tensor]) -> None:
        """Load a snapshot."""
        assert self._wal is not None, "there is a snapshot"
        self.shared_init = _pop_prefixed(state, _SHARED)
        self._norms.known = {int(number): norm for number, norm in _pop_prefixed(state, _NORM).items()}
        gathered = _pop_prefixed(state, _GATHERED)
        self.results, rest = GatherResults(), iter([gathered[str(place)] for place in range(len(gathered))])
        for described in manifest["all_gathers"]:
            self.results.add(*_decode_gathered(described, rest))
        self.updater.load(state)
        for name, table in self.tables.items():
            table.restore(self._folder_of(table), manifest["tables"].get(name, []))
        self.applied.load(manifest["applied"])
        self.steps_reported, self.loads = manifest["steps_reported"], manifest["loads"]
        self._membership.left = set(manifest["left"])
        self.is_initialised = True

    def _replay(self, record: LogRecord, tensors: list[Tensor], step: int) -> int:
        """Replay one record; returns the step after it."""
        meta = record.meta
        match record.kind:
            case "leave":
                self._membership.left.add(meta["trainer"])
            case "rejoin":
                self._membership.left.discard(meta["trainer"])
            case "step_done":
                self.steps_reported = max(self.steps_reported, meta["step"])
            case "all_gather":
                self.results.add(*_decode_gathered(meta, iter(tensors)))
            case "step":
                self.apply(_update(record, tensors))
                return int(meta["step"])
            case _:
                push, origin = PushUpdate.decode(meta, tensors)
                push.apply(self)
                self.applied.add(*origin)
                self.steps_reported = max(self.steps_reported, meta["steps_reported"])
        return step

    def close(self) -> None:
        self._commit.stop()
        if self._wal is not None:
            self._wal.close()
        for table in self.tables.values():
            table.close()
        if self._spilled is not None:
            self._spilled.cleanup()


@dataclass(frozen=True)
class _Snapshot:
    """A captured snapshot: the state at one moment."""

    log: int
    """The number of the log that begins at that moment."""
    state: dict[str, Tensor]
    more: dict[str, Any]
    tables: dict[str, TableSnapshot]


def _acknowledge_when_logged(request: Request, acknowledge: Callable[[], None]) -> Done:
    """A callback that acknowledges a request when its record is written."""

    def done(error: Exception | None) -> None:
        if error is not None:
            text = f"the push could not be logged: {error}; check the disk of the server's state directory"
            request.reject_if_pending(text)
            return
        try:
            acknowledge()
        except (
            ArgosyError
        ) as e:  # half_async: its trainer was restarted or evicted while the record was written
            request.reject_if_pending(str(e))

    return done


def _update(record: LogRecord, tensors: list[Tensor]) -> SyncUpdate:
    """The update in a record of `record_step`."""
    meta, blocks, tables = record.meta, record.meta["blocks"], record.meta["tables"]
    gradients, rest = tensors[: len(blocks)], tensors[len(blocks) :]
    rows = {name: (rest[2 * i], rest[2 * i + 1]) for i, name in enumerate(tables)}
    norms = rest[2 * len(tables) :]
    by_block = dict(zip(blocks, gradients, strict=True))
    return SyncUpdate(meta["step"], by_block, meta["rates"], rows, meta["row_rates"], norms)


def _described(key: CollectiveKey, result: Gathered) -> dict[str, Any]:
    return {"name": key[0], "number": key[1], "counts": [len(tensors) for tensors in result]}


def _decode_gathered(described: dict[str, Any], rest: Iterator[Tensor]) -> tuple[CollectiveKey, Gathered]:
    """The all-gather that `_described` describes, with its tensors."""
    result = [[next(rest) for _ in range(count)] for count in described["counts"]]
    return (described["name"], described["number"]), result


def _pop_prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove and return the values whose names have this prefix, without the prefix."""
    names = [name for name in state if name.startswith(prefix)]
    return {name.removeprefix(prefix): state.pop(name) for name in names}
