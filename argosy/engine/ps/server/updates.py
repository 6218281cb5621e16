"""Updates of a server: the mean gradients of a synchronous step, and pushes that are applied on arrival."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from argosy.engine.disk import Buffer
from argosy.engine.ps.rpc.request import Request
from argosy.engine.ps.server.wal import encode_record
from argosy.engine.ps.table.table import SparseTable

PushId = tuple[int, str, int, int]
"""Identifies a push: trainer, client, sequence number, and the number below which the client has all replies."""


class BlockUpdater(Protocol):
    """The part of `Updater` that a push of blocks uses."""

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None: ...


class PushTarget(Protocol):
    """The updater and the tables that a push is applied to."""

    @property
    def updater(self) -> BlockUpdater: ...

    @property
    def tables(self) -> dict[str, SparseTable]: ...


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

    def apply(self, target: PushTarget) -> None:
        for block in self.blocks:
            target.updater.apply_block(block.name, block.gradient, block.rate, block.backup)
        if self.ids is None or self.rows is None:
            return
        table = target.tables[self.table]
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
class _Client:
    trainer: int
    acked_below: int = 0
    """The client has the replies to all requests below this number."""
    ids: set[int] = field(default_factory=set)


class AppliedPushes:
    """The sequence numbers of the applied pushes that each client may send again."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
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
                for old in [name for name, one in self._clients.items() if one.trainer == trainer >= 0]:
                    del self._clients[old]
                pushes = self._clients[client] = _Client(trainer)
            pushes.ids.add(number)
            if acked_below > pushes.acked_below:
                pushes.acked_below = acked_below
                pushes.ids = {number for number in pushes.ids if number >= acked_below}

    def to_json(self) -> list[list[Any]]:
        with self._lock:
            return [
                [one.trainer, name, one.acked_below, sorted(one.ids)] for name, one in self._clients.items()
            ]

    def load(self, clients: list[list[Any]]) -> None:
        """Restore the result of `to_json`."""
        with self._lock:
            self._clients = {
                name: _Client(trainer, acked_below, set(ids)) for trainer, name, acked_below, ids in clients
            }


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
