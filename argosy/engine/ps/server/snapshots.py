"""Snapshots of the whole state of a server, and its recovery: the last snapshot, then the records of the log.

capture   under all locks: copy the state, begin a new log    fast; updates continue afterwards
write     tables, then the dense state and the manifest       slow; until its end the previous snapshot is valid
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.ps.server.state import PushUpdate, ServerState, SyncUpdate
from argosy.engine.ps.server.trainer_collectives import (
    CollectiveKey,
    Gathered,
    GatherResults,
    decode_result,
    describe_result,
)
from argosy.engine.ps.server.wal import LogRecord
from argosy.engine.ps.table.table import SparseTable, TableSnapshot

_RETRY_S, _RETRY_FOR_S = 0.5, 30.0
_LOG_BYTES, _LOG_PER_STATE = 64 << 20, 4
"""A snapshot is due when the log is larger than the first, and than this multiple of the dense state."""
_SHARED, _NORM, _GATHERED = "@shared@", "@norm@", "@gathered@"
"""Prefixes of the names of values in a snapshot that are not variables of the program."""


@dataclass(frozen=True)
class StateSnapshot:
    """The state at one moment, captured and not written yet."""

    log: int
    """The number of the log that begins at that moment."""
    values: dict[str, Tensor]
    meta: dict[str, Any]
    tables: dict[str, TableSnapshot]


class Snapshots:
    """Writes and restores the state of one server; without a directory it does nothing."""

    def __init__(self, state: ServerState, job: str = "") -> None:
        """`job`: the name of the job; it starts from the state that another job has left."""
        self._state, self._wal, self._job = state, state.wal, job
        self.is_untouched = True
        """False if it was restored with changes since the initial values."""
        self._captured: StateSnapshot | None = None
        self._writing = threading.Lock()

    @property
    def is_restored(self) -> bool:
        """True if the directory has a state to restore."""
        return self._wal is not None and self._wal.manifest is not None

    @property
    def is_of_another_job(self) -> bool:
        """True if the state is of another job."""
        manifest = self._wal.manifest if self._wal else None
        return manifest is not None and bool(self._job) and manifest["job"] != self._job

    @property
    def is_due(self) -> bool:
        """True if the log is so long that a replay would take long."""
        wal = self._wal
        return wal is not None and wal.log_bytes > max(_LOG_BYTES, _LOG_PER_STATE * wal.state_bytes)

    # --- setting the whole state ----------------------------------------------------------------------

    def initialise(self, values: Mapping[str, Tensor], shared: dict[str, Tensor]) -> None:
        """Set the initial values of the blocks; `shared`: those of variables that every trainer has for itself."""
        state = self._state
        state.shared_init = shared
        for name, block in state.blocks(values).items():
            block.copy_(values[name].view_as(block))
        state.updater.initialised()
        # The log starts with a snapshot: no trainer gets values, and pushes, before it is written.
        self._write_first()
        state.is_initialised = True

    def _write_first(self) -> None:
        """Retry as the log does: a full disk may be cleared."""
        until = time.monotonic() + _RETRY_FOR_S
        while True:
            try:
                self.capture(0)
                self.write_captured()
            except OSError as e:
                if time.monotonic() > until:
                    raise
                logger.error(
                    "the first snapshot could not be written: %s; retrying for %g s", e, _RETRY_FOR_S
                )
                time.sleep(_RETRY_S)
            else:
                return

    def replace(self, load: Callable[[], None], number: int, step: int) -> None:
        """Replace the state by what `load` loads. Idempotent: `number` counts the loads of the job."""
        with self._state.locked():
            if number <= self._state.loads:
                return
            for table in self._state.tables.values():
                table.clear()
            load()
            self._state.loads = number
        self.take(step)

    def begin_job(self, step: int) -> None:
        """Take over the state of another job: reset what concerns that job's processes, and write a snapshot."""
        state = self._state
        state.results, state.membership.left, state.loads = GatherResults(), set(), 0
        state.applied.load([])
        state.norms.known = {}
        self.take(step)

    # --- writing --------------------------------------------------------------------------------------

    def take(self, step: int) -> None:
        """Write a snapshot of an initialised server; updates continue meanwhile."""
        if self._state.is_initialised:
            self.capture(step)
            self.write_captured()

    def capture(self, step: int) -> None:
        """Copy the state for `write_captured`, and begin a new log, which has all changes from now on.

        Fast: it copies the dense state, and the rows that have changed since the last snapshot.
        """
        if self._wal is None:
            return
        state, wal = self._state, self._wal
        logs: SimpleQueue[int] = SimpleQueue()
        outcome: SimpleQueue[Exception | None] = SimpleQueue()
        with state.locked(), state.record_lock:
            results = state.results.items()  # once: collectives add to them meanwhile
            values = {name: value.detach().clone() for name, value in _values(state, results).items()}
            meta = {"job": self._job, "step": step, **_metadata(state, results)}
            tables = {
                name: table.capture_snapshot(self._folder_of(table)) for name, table in state.tables.items()
            }
            state.commit.between(lambda: logs.put(wal.begin_log()), outcome.put)
        state.commit.flush()
        if (error := outcome.get()) is not None:
            raise error
        self._captured = StateSnapshot(logs.get(), values, meta, tables)

    def write_captured(self) -> None:
        """Write the snapshot that was captured last, if it is not written yet."""
        with self._writing:
            snapshot, self._captured = self._captured, None
            if snapshot is None:
                return
            assert self._wal is not None, "there is a directory for snapshots"
            listed = (self._wal.manifest or {}).get("tables", {})
            files = {}
            for name, rows in snapshot.tables.items():
                table = self._state.tables[name]
                table.write_snapshot(self._folder_of(table), rows, listed.get(name, []))
                files[name] = table.snapshot_files()
            self._wal.snapshot(snapshot.log, snapshot.values, {**snapshot.meta, "tables": files})

    def _folder_of(self, table: SparseTable) -> Path:
        assert self._wal is not None, "there is a directory for snapshots"
        return self._wal.tables / table.spec.file_name

    # --- restoring ------------------------------------------------------------------------------------

    def restore(self, last: int | None = None) -> int | None:
        """Restore the snapshot and replay the log; returns the last step, None if there is no state.

        `last`: stop the replay after this step.
        """
        if self._wal is None or self._wal.manifest is None:
            self.take(0)
            return None
        manifest, values = self._wal.manifest, self._wal.state()
        if last is not None and manifest["step"] > last:
            raise ConfigError(
                f"{self._wal.directory} starts at step {manifest['step']}, and another server has done only "
                f"{last}: their states are of different jobs, or one is incomplete; start all servers from a saved "
                "model, in another state directory"
            )
        _load(self._state, manifest, values)
        for name, table in self._state.tables.items():
            table.restore(self._folder_of(table), manifest["tables"].get(name, []))
        step, count, is_past = int(manifest["step"]), 0, False
        for record, tensors in self._wal.records():  # to the end: it repairs the end of the last log
            is_past |= last is not None and record.kind == "step" and record.meta["step"] > last
            if not is_past:
                count += 1
                step = self._replay(record, tensors, step)
        if not self.is_of_another_job:
            self._state.membership.live -= self._state.membership.left
        self.is_untouched = step == count == 0
        logger.warning(
            "recovered to step %d: snapshot of step %d and %d log records", step, manifest["step"], count
        )
        return step

    def _replay(self, record: LogRecord, tensors: list[Tensor], step: int) -> int:
        """Replay one record; returns the step after it."""
        state, meta = self._state, record.meta
        match record.kind:
            case "leave":
                state.membership.left.add(meta["trainer"])
            case "rejoin":
                state.membership.left.discard(meta["trainer"])
            case "step_done":
                state.steps_reported = max(state.steps_reported, meta["step"])
            case "all_gather":
                state.results.add(*decode_result(meta, iter(tensors)))
            case "step":
                state.apply(SyncUpdate.decode(meta, tensors))
                return int(meta["step"])
            case _:
                push, push_id = PushUpdate.decode(meta, tensors)
                push.apply(state)
                state.applied.add(*push_id)
                state.steps_reported = max(state.steps_reported, meta["steps_reported"])
        return step


Results = list[tuple[CollectiveKey, Gathered]]


def _values(state: ServerState, results: Results) -> dict[str, Tensor]:
    """The tensors of a snapshot, without those of tables."""
    gathered = [tensor for _, result in results for tensors in result for tensor in tensors]
    return {
        **state.updater.state(),
        **{f"{_SHARED}{name}": value for name, value in state.shared_init.items()},
        **{f"{_NORM}{number}": norm for number, norm in state.norms.known.items()},
        **{f"{_GATHERED}{place}": tensor for place, tensor in enumerate(gathered)},
    }


def _metadata(state: ServerState, results: Results) -> dict[str, Any]:
    """The rest of a snapshot, for the manifest."""
    return {
        "steps_reported": state.steps_reported,
        "loads": state.loads,
        "left": sorted(state.membership.left),
        "all_gathers": [describe_result(*result) for result in results],
        "applied": state.applied.to_json(),
    }


def _load(state: ServerState, manifest: dict[str, Any], values: dict[str, Tensor]) -> None:
    """Set the state from the results of `_metadata` and `_values`."""
    state.shared_init = _pop_prefixed(values, _SHARED)
    state.norms.known = {int(number): norm for number, norm in _pop_prefixed(values, _NORM).items()}
    gathered = _pop_prefixed(values, _GATHERED)
    state.results, rest = GatherResults(), iter([gathered[str(place)] for place in range(len(gathered))])
    for described in manifest["all_gathers"]:
        state.results.add(*decode_result(described, rest))
    state.updater.load(values)
    state.applied.load(manifest["applied"])
    state.steps_reported, state.loads = manifest["steps_reported"], manifest["loads"]
    state.membership.left = set(manifest["left"])
    state.is_initialised = True


def _pop_prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove and return the values whose names have this prefix, without the prefix."""
    names = [name for name in state if name.startswith(prefix)]
    return {name.removeprefix(prefix): state.pop(name) for name in names}
