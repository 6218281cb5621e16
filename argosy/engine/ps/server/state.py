"""Everything that a server keeps: blocks, tables, norms, who has left; on disk too, if it is given a place."""

# SPDX-License-Identifier: Apache-2.0
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.server.journal import Journal, Record
from argosy.engine.ps.server.meetings import Key, Result
from argosy.engine.ps.server.members import Members
from argosy.engine.ps.server.norms import Norms
from argosy.engine.ps.server.rounds import Update
from argosy.engine.ps.table.table import SparseTable

_LOG_BYTES = 64 << 20
_KEPT, _NORM, _MET = "@kept@", "@norm@", "@met@"
"""What begins the names of values in a snapshot that are no variables of the program."""


class Updater(Protocol):
    """Keeps the blocks of a server, and updates them."""

    def values(self) -> Mapping[str, Tensor]:
        """The blocks by name, to read."""

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """One step of the optimizer with the mean gradients of all blocks."""

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        """One step of the optimizer on one block."""

    def initialised(self) -> None:
        """The blocks have got their first values."""

    def origins(self) -> dict[str, list[Any]]:
        """Of each part of a variable of the whole program: [its name, the first row]."""

    def state(self) -> Mapping[str, Tensor]:
        """Everything that must be kept: blocks and optimizer state."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""


class State:
    """What changes with the steps of a job."""

    def __init__(
        self, plan: Plan, updater: Updater, members: Members, norms: Norms, directory: Path | None
    ) -> None:
        self.updater = updater
        self.is_initialised = not plan.initialised_by_trainer
        self.kept: dict[str, Tensor] = {}
        """Values that every trainer has for itself, for all to begin with."""
        self.met: tuple[Key, Result] | None = None
        """The last meeting that is over."""
        self._members, self._norms = members, norms
        self._journal = Journal(directory) if directory else None
        self._lock = threading.Lock()
        """Of the journal."""
        spills = any(table.memory_rows for table in plan.tables)
        for old in directory.glob("argosy-rows-*") if directory else ():  # of a server that was killed
            shutil.rmtree(old, ignore_errors=True)
        self._spilled = tempfile.TemporaryDirectory(prefix="argosy-rows-", dir=directory) if spills else None
        place = Path(self._spilled.name) if self._spilled else None
        self.tables = {table.name: SparseTable(table, place) for table in plan.tables}

    @property
    def is_restored(self) -> bool:
        """True if there is the state of a server that was killed, to go on with."""
        return self._journal is not None and self._journal.manifest is not None

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

    def initialise(self, values: Mapping[str, Tensor], kept: dict[str, Tensor]) -> None:
        """The blocks get their first values; `kept`: what trainers begin with."""
        self.kept = kept
        for name, block in self.blocks(values).items():
            block.copy_(values[name].view_as(block))
        self.updater.initialised()
        self.is_initialised = True
        self.snapshot(0)

    def apply(self, update: Update) -> None:
        """One step with the mean of all trainers."""
        self._norms.begin(update.step, update.norms)
        self.updater.apply(update.gradients, update.rates)
        for name, (ids, rows) in update.rows.items():
            self.tables[name].push(ids, rows, update.row_rates[name])

    def record(self, update: Update) -> None:
        """Write down a step that was applied, so that a successor of this server can do it again."""
        if self._journal is None:
            return
        meta = {
            "step": update.step,
            "blocks": list(update.gradients),
            "rates": update.rates,
            "tables": list(update.rows),
            "row_rates": update.row_rates,
        }
        rows = [tensor for pair in update.rows.values() for tensor in pair]
        with self._lock:
            self._journal.append("step", meta, [*update.gradients.values(), *rows, *self._norms.of_step])
            is_long = self._journal.log_bytes > max(_LOG_BYTES, 4 * self._journal.state_bytes)
        if is_long:
            self.snapshot(update.step)

    def record_left(self, trainer: int) -> None:
        """Write down that a trainer is done."""
        self._append("left", {"trainer": trainer}, [])

    def record_back(self, trainer: int) -> None:
        """Write down that a trainer that was done is there again."""
        self._append("back", {"trainer": trainer}, [])

    def record_met(self, key: Key, result: Result) -> None:
        """Write down what a meeting gives before anybody gets it: all must get the same, or all nothing."""
        self.met = (key, result)
        self._append("met", _described(key, result), [tensor for tensors in result for tensor in tensors])

    def _append(self, kind: str, meta: dict[str, Any], tensors: list[Tensor]) -> None:
        with self._lock:
            if self._journal is not None and self._journal.manifest is not None:
                self._journal.append(kind, meta, tensors)

    def snapshot(self, step: int) -> None:
        """Write everything, if there is a place for it. Under async what comes meanwhile may be in it or not."""
        if self._journal is None or not self.is_initialised:
            return
        with self._lock:
            tables: dict[str, Any] = {}
            for name, table in self.tables.items():
                path = self._journal.tables / table.spec.file_name
                path.mkdir(parents=True, exist_ok=True)
                table.snapshot(path)
                tables[name] = table.state()
            met = [tensor for tensors in self.met[1] for tensor in tensors] if self.met else []
            state = {
                **self.updater.state(),
                **{f"{_KEPT}{name}": value for name, value in self.kept.items()},
                **{f"{_NORM}{number}": norm for number, norm in self._norms.known.items()},
                **{f"{_MET}{place}": tensor for place, tensor in enumerate(met)},
            }
            met_key = _described(*self.met) if self.met else None
            more = {"tables": tables, "left": sorted(self._members.left), "met": met_key}
            self._journal.snapshot(step, state, more)

    def restore(self) -> int | None:
        """Go on where a server that was killed has ended; returns the step that it had done, None if there was none."""
        if self._journal is None or self._journal.manifest is None:
            self.snapshot(0)
            return None
        manifest, state = self._journal.manifest, self._journal.state()
        self.kept = _taken(state, _KEPT)
        self._norms.known = {int(number): norm for number, norm in _taken(state, _NORM).items()}
        met = _taken(state, _MET)
        if manifest["met"]:
            self.met = _met(manifest["met"], [met[str(place)] for place in range(len(met))])
        self.updater.load(state)
        for name, table in self.tables.items():
            table.restore(self._journal.tables / table.spec.file_name, manifest["tables"].get(name, []))
        self._members.left = set(manifest["left"])
        self.is_initialised = True
        step, records = int(manifest["step"]), 0
        for record, tensors in self._journal.records():
            records += 1
            match record.kind:
                case "left":
                    self._members.left.add(record.meta["trainer"])
                case "back":
                    self._members.left.discard(record.meta["trainer"])
                case "met":
                    self.met = _met(record.meta, tensors)
                case _:
                    self.apply(_update(record, tensors))
                    step = record.meta["step"]
        self._members.live -= self._members.left
        logger.warning(
            "going on after step %d: snapshot of step %d and %d records", step, manifest["step"], records
        )
        self.snapshot(step)
        return step

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        for table in self.tables.values():
            table.close()
        if self._spilled is not None:
            self._spilled.cleanup()


def _update(record: Record, tensors: list[Tensor]) -> Update:
    """What `State.record` wrote."""
    meta, blocks, tables = record.meta, record.meta["blocks"], record.meta["tables"]
    gradients, rest = tensors[: len(blocks)], tensors[len(blocks) :]
    rows = {name: (rest[2 * i], rest[2 * i + 1]) for i, name in enumerate(tables)}
    norms = rest[2 * len(tables) :]
    by_block = dict(zip(blocks, gradients, strict=True))
    return Update(meta["step"], by_block, meta["rates"], rows, meta["row_rates"], norms)


def _described(key: Key, result: Result) -> dict[str, Any]:
    return {"name": key[0], "number": key[1], "counts": [len(tensors) for tensors in result]}


def _met(described: dict[str, Any], tensors: list[Tensor]) -> tuple[Key, Result]:
    """What `_described` tells, and its tensors, as they were."""
    rest = iter(tensors)
    result = [[next(rest) for _ in range(count)] for count in described["counts"]]
    return (described["name"], described["number"]), result


def _taken(state: dict[str, Tensor], beginning: str) -> dict[str, Tensor]:
    """Take the values out whose names begin so; gives them without it."""
    names = [name for name in state if name.startswith(beginning)]
    return {name.removeprefix(beginning): state.pop(name) for name in names}
