"""The state of a server: blocks, tables, norms, membership. An update is logged before it is acknowledged.

    sync                     apply(mean of the step) ──▶ record_step ──▶ replies to the trainers
    async, half_async, geo   push: apply under the locks of what it changes ──▶ group commit ──▶ reply
    pull                     read under the same locks ──▶ reply when all updates in it are in the log

`snapshots.py` writes and restores the whole state.
"""

# SPDX-License-Identifier: Apache-2.0
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from torch import Tensor

from argosy.engine.disk import Buffer, Disk
from argosy.engine.errors import ArgosyError, ConfigError
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.rpc.server import Request
from argosy.engine.ps.server.membership import Membership
from argosy.engine.ps.server.staleness import Staleness
from argosy.engine.ps.server.trainer_collectives import (
    CollectiveKey,
    Gathered,
    GatherResults,
    Norms,
    describe_result,
)
from argosy.engine.ps.server.wal import Done, GroupCommit, WriteAheadLog, encode_record
from argosy.engine.ps.table.table import SparseTable

R = TypeVar("R")
DURABILITIES = ("log", "disk", "snapshot")
PushId = tuple[int, str, int, int]
"""Identifies a push: trainer, client, sequence number, and the number below which the client has all replies."""


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


@dataclass(frozen=True)
class BlockGradient:
    """A gradient of a block (geo: a delta)."""

    name: str
    gradient: Tensor
    rate: float
    backup: Tensor | None = None
    """DC-ASGD: the values that the gradient was computed with."""


@dataclass(frozen=True)
class PushUpdate:
    """Gradients of blocks, or of rows of one table."""

    blocks: Sequence[BlockGradient] = ()
    table: str = ""
    ids: Tensor | None = None
    rows: Tensor | None = None
    rate: float = 0.0
    adds: bool = False
    """geo: the rows are deltas, added to those of the table."""

    @property
    def names(self) -> list[str]:
        """The blocks, or the table, that it changes."""
        return [self.table] if self.table else [block.name for block in self.blocks]

    def apply(self, state: "ServerState") -> None:
        for block in self.blocks:
            state.updater.apply_block(block.name, block.gradient, block.rate, block.backup)
        if self.ids is None or self.rows is None:
            return
        table = state.tables[self.table]
        if self.adds:
            table.add(self.ids, self.rows)
        else:
            table.push(self.ids, self.rows, self.rate)

    def encode(self, request: Request, steps: int) -> list[Buffer]:
        """Its log record; `steps`: how many steps the trainers have done."""
        push_id = {
            "trainer": request.trainer,
            "client": request.client,
            "id": request.id,
            "acked_below": request.acked_below,
            "steps_reported": steps,
        }
        if self.ids is not None and self.rows is not None:
            meta = {**push_id, "table": self.table, "rate": self.rate, "adds": self.adds}
            return encode_record("push_rows", meta, [self.ids, self.rows])
        described = [[block.name, block.rate, block.backup is not None] for block in self.blocks]
        tensors = [t for block in self.blocks for t in (block.gradient, block.backup) if t is not None]
        return encode_record("push", {**push_id, "blocks": described}, tensors)

    @classmethod
    def decode(cls, meta: dict[str, Any], tensors: Sequence[Tensor]) -> tuple["PushUpdate", PushId]:
        """The push in a record that `encode` wrote."""
        push_id = (meta["trainer"], meta["client"], meta["id"], meta["acked_below"])
        if "table" in meta:
            ids, rows = tensors
            return cls((), meta["table"], ids, rows, meta["rate"], meta["adds"]), push_id
        rest = iter(tensors)
        blocks = [
            BlockGradient(name, next(rest), rate, next(rest) if has_backup else None)
            for name, rate, has_backup in meta["blocks"]
        ]
        return cls(blocks), push_id


@dataclass
class SyncUpdate:
    """The mean gradients of a step: applied, and written to the log."""

    step: int
    gradients: dict[str, Tensor]
    rates: dict[str, float]
    """For each block, as the first live trainer has it."""
    rows: dict[str, tuple[Tensor, Tensor]]
    row_rates: dict[str, float]
    norms: list[Tensor] = field(default_factory=list)
    """In a replay: the sums over the servers that the step used."""

    def encode(self, norms: Sequence[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
        """Metadata and tensors of its log record; `norms`: the sums over the servers that the step used."""
        meta = {
            "step": self.step,
            "blocks": list(self.gradients),
            "rates": self.rates,
            "tables": list(self.rows),
            "row_rates": self.row_rates,
        }
        rows = [tensor for pair in self.rows.values() for tensor in pair]
        return meta, [*self.gradients.values(), *rows, *norms]

    @classmethod
    def decode(cls, meta: dict[str, Any], tensors: Sequence[Tensor]) -> "SyncUpdate":
        """The update in a record that `encode` wrote."""
        blocks, tables = meta["blocks"], meta["tables"]
        gradients, rest = tensors[: len(blocks)], tensors[len(blocks) :]
        rows = {name: (rest[2 * i], rest[2 * i + 1]) for i, name in enumerate(tables)}
        norms = list(rest[2 * len(tables) :])
        by_block = dict(zip(blocks, gradients, strict=True))
        return cls(meta["step"], by_block, meta["rates"], rows, meta["row_rates"], norms)


@dataclass
class _ClientPushes:
    trainer: int
    acked_below: int = 0
    """The client has the replies to all requests below this number."""
    ids: set[int] = field(default_factory=set)


class AppliedPushes:
    """The sequence numbers of the applied pushes that each client may send again."""

    def __init__(self) -> None:
        self._clients: dict[str, _ClientPushes] = {}
        self._lock = threading.Lock()

    def has(self, request: Request) -> bool:
        """True if this push has been applied."""
        with self._lock:
            client = self._clients.get(request.client)
            return client is not None and request.id in client.ids

    def add(self, trainer: int, client: str, number: int, acked_below: int) -> None:
        """Note an applied push; the client has the replies to all requests below `acked_below`."""
        with self._lock:
            pushes = self._clients.get(client)
            if pushes is None:  # a new incarnation of this trainer: the previous one is gone
                for old in [name for name, other in self._clients.items() if other.trainer == trainer >= 0]:
                    del self._clients[old]
                pushes = self._clients[client] = _ClientPushes(trainer)
            pushes.ids.add(number)
            if acked_below > pushes.acked_below:
                pushes.acked_below = acked_below
                pushes.ids = {number for number in pushes.ids if number >= acked_below}

    def to_json(self) -> list[list[Any]]:
        with self._lock:
            return [
                [pushes.trainer, name, pushes.acked_below, sorted(pushes.ids)]
                for name, pushes in self._clients.items()
            ]

    def load(self, clients: list[list[Any]]) -> None:
        """Restore the result of `to_json`."""
        with self._lock:
            self._clients = {
                name: _ClientPushes(trainer, acked_below, set(ids))
                for trainer, name, acked_below, ids in clients
            }


class ServerState:
    """The values of one server, and their updates."""

    def __init__(
        self,
        plan: JobPlan,
        updater: Updater,
        membership: Membership,
        norms: Norms,
        directory: Path | None,
        durability: str = "log",
        disk: Disk | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        """`durability`: "log" (a push is in the log before it is acknowledged), "disk" (and on the disk), "snapshot".

        `failed` is called with the reason if the log cannot be written.
        """
        if durability not in DURABILITIES:
            raise ConfigError(f"durability {durability!r}: use one of {', '.join(DURABILITIES)}")
        self.updater, self.membership, self.norms = updater, membership, norms
        self.durability = durability
        self.is_initialised = not plan.initialised_by_trainer
        self.shared_init: dict[str, Tensor] = {}
        """Initial values of variables that every trainer has for itself."""
        self.results = GatherResults()
        """Results of all-gathers; logged before any trainer gets them."""
        self.applied = AppliedPushes()
        self.staleness: Staleness | None = None
        """Set to measure how many updates pushes are behind."""
        self.loads = 0
        """How often the trainers of this job have loaded a checkpoint."""
        self.steps_reported = 0
        """async: how many steps all trainers have done, as far as they have reported; half_async: the last one done."""
        self.wal = WriteAheadLog(directory, disk, syncs=durability == "disk") if directory else None
        self.commit = GroupCommit(
            self.wal.append if self.wal else lambda _: None,
            lambda error: failed(f"the log cannot be written: {error}") if failed else None,
        )
        self._logs_pushes = durability != "snapshot" and plan.mode != "sync"
        self._locks = {
            name: threading.Lock()
            for name in sorted([*updater.values(), *(table.name for table in plan.tables)])
        }
        """One per block and table: its updates are logged in the order in which they are applied."""
        self.record_lock = threading.Lock()
        """Held while any other record is queued, and by a snapshot while it copies the state and begins a new log."""
        self._spill_folder = _make_spill_folder(plan, directory)
        place = Path(self._spill_folder.name) if self._spill_folder else None
        self.tables = {table.name: SparseTable(table, place, disk) for table in plan.tables}

    @contextmanager
    def locked(self, names: Iterable[str] | None = None) -> Iterator[None]:
        """Hold the locks of these blocks and tables, by default of all, so that no update changes them."""
        with ExitStack() as locks:
            for name in sorted(self._locks if names is None else names):
                locks.enter_context(self._locks[name])
            yield

    def blocks(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The values of these blocks."""
        values = self.updater.values()
        for name in names:
            if name not in values:
                raise ConfigError(
                    f"this server has no block {name!r}; it has {', '.join(sorted(values)) or 'none'}"
                )
        return {name: values[name] for name in names}

    def shaped(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Received tensors in the shapes of their blocks; raises ConfigError if a block is unknown or does not fit."""
        blocks = self.blocks(tensors)
        return {name: _shaped(name, tensor, blocks[name]) for name, tensor in tensors.items()}

    def table(self, name: str) -> SparseTable:
        if name not in self.tables:
            raise ConfigError(f"this server has no table {name!r}; it has {sorted(self.tables) or 'none'}")
        return self.tables[name]

    def apply(self, update: SyncUpdate) -> None:
        """sync: one step with the mean of all trainers."""
        self.norms.begin(update.step, update.norms)
        self.updater.apply(update.gradients, update.rates)
        for name, (ids, rows) in update.rows.items():
            self.tables[name].push(ids, rows, update.row_rates[name])

    def push(self, push: PushUpdate, request: Request, acknowledge: Callable[[], None]) -> None:
        """Apply a push, and call `acknowledge` when it is in the log; a duplicate is only acknowledged.

        The update and its record hold the locks of what they change, so that a replay has the same order.
        """
        parts = push.encode(request, self.steps_reported) if self.keeps_log else []
        with self.locked(push.names):
            if self.applied.has(request):
                parts = []
            else:
                if self.staleness is not None:
                    self.staleness.note_push(request.trainer, push.names)
                push.apply(self)
                self.applied.add(request.trainer, request.client, request.id, request.acked_below)
                if parts:
                    self.commit.add(parts, _acknowledge_when_logged(request, acknowledge))
        if parts:
            self.commit.flush()
        else:
            acknowledge()

    def read(self, names: Iterable[str], read: Callable[[], R], reply: Callable[[R], None]) -> None:
        """Call `reply` with the result of `read` on these blocks and tables, when all updates in it are in the log.

        Otherwise a trainer could see an update that is lost if this server is killed.
        """
        if not self.keeps_log:
            reply(read())
            return
        with self.locked(names):
            values = read()

        def done(error: Exception | None) -> None:
            if error is None:  # else the server has failed, and rejects all requests
                reply(values)

        self.commit.after(done)

    @property
    def keeps_log(self) -> bool:
        """True if pushes are logged: reads must copy, since later updates are not logged yet."""
        return self.wal is not None and self._logs_pushes

    # --- records of the log that are not pushes -------------------------------------------------------

    def record_step(self, update: SyncUpdate) -> None:
        """sync: log a step that was applied, so that a restarted server can replay it."""
        if self.wal is not None:
            self._append("step", *update.encode(self.norms.of_step))

    def record_step_done(self, step: int) -> None:
        """half_async: log that all trainers have done a step, whose pushes are in the log."""
        self.steps_reported = max(self.steps_reported, step)
        self._append("step_done", {"step": step}, [])

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
            tensors = [tensor for tensors in result for tensor in tensors]
            self._append("all_gather", describe_result(key, result), tensors)
        except BaseException:
            self.results.remove(key)
            raise

    def _append(self, kind: str, meta: dict[str, Any], tensors: list[Tensor]) -> None:
        """Log a record, and return when it is written."""
        if self.wal is None or self.wal.manifest is None:
            return
        outcome: SimpleQueue[Exception | None] = SimpleQueue()
        parts = encode_record(kind, meta, tensors)
        with self.record_lock:
            self.commit.add(parts, outcome.put)
        self.commit.flush()
        if (error := outcome.get()) is not None:
            raise error

    def close(self) -> None:
        self.commit.stop()
        if self.wal is not None:
            self.wal.close()
        for table in self.tables.values():
            table.close()
        if self._spill_folder is not None:
            self._spill_folder.cleanup()


def _make_spill_folder(plan: JobPlan, directory: Path | None) -> "tempfile.TemporaryDirectory[str] | None":
    """A directory for rows that do not fit into memory; removes those of servers that were killed."""
    for old in directory.glob("argosy-rows-*") if directory else ():
        shutil.rmtree(old, ignore_errors=True)
    if not any(table.memory_rows for table in plan.tables):
        return None
    return tempfile.TemporaryDirectory(prefix="argosy-rows-", dir=directory)


def _shaped(name: str, given: Tensor, block: Tensor) -> Tensor:
    """The received tensor in the block's shape; raises ConfigError if size or dtype differ."""
    if given.numel() != block.numel() or given.dtype != block.dtype:
        raise ConfigError(
            f"block {name!r} is {block.dtype}{list(block.shape)} and received {given.dtype}{list(given.shape)}; "
            "trainers and servers must build the same program"
        )
    return given.view(block.shape)


def _acknowledge_when_logged(request: Request, acknowledge: Callable[[], None]) -> Done:
    """A callback that acknowledges a request when its record is written."""

    def done(error: Exception | None) -> None:
        if error is not None:
            text = f"the push could not be logged: {error}; check the disk of the server's state directory"
            request.reject_if_pending(text)
            return
        try:
            acknowledge()
        except ArgosyError as e:
            # half_async: its trainer was restarted or dropped while the record was written.
            request.reject_if_pending(str(e))

    return done
