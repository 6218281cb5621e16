"""Saving what the servers keep, and beginning with what was saved."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection
from pathlib import Path

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime import store
from argosy.engine.runtime.scope import global_scope


def save_persistables(trainer: Trainer, program: Program, path: Path) -> None:
    """Everything: parameters and optimizer state from the servers, tables by each server, the rest from here."""
    exchange_changes(trainer)
    scope = global_scope()
    here = {n: scope.get(n) for n in program.persistables() if scope.values_of().get(n) is not None}
    values = {**here, **trainer.blocks.state()}
    path.parent.mkdir(parents=True, exist_ok=True)
    sums = store.checksums(values)
    store.replace_files({path: store.tensor_writer(values, sums, store.save_id(sums))})
    if trainer.plan.tables:
        trainer.save_tables(str(path.parent.absolute()))


def exchange_changes(trainer: Trainer) -> None:
    """geo: give the servers what has changed here since the last exchange, and take what others have changed."""
    if trainer.plan.mode == "geo" and trainer.geo.has_begun:
        scope = global_scope()
        trainer.geo.exchange({variable.name: scope.get(variable.name) for variable in trainer.plan.dense})


def load_on_server(program: Program, path: Path, tables: Collection[str] | None = None) -> None:
    """Let a server begin with what any number of servers saved; `tables`: only these, and no parameters."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no directory {str(path.parent)!r}; name one of save_persistables")
    serving = program.serving
    if tables is None and (serving.plan.dense or path.exists()):
        serving.saved = store.read_tensors(path)[0]
    serving.saved_tables = path.parent.absolute()
    serving.only_tables = frozenset(tables or (table.name for table in serving.plan.tables))


def load_on_trainer(trainer: Trainer, program: Program, path: Path) -> None:
    """Read what this trainer has for itself; the rest the servers must have read from the same file."""
    found, scope = store.read_tensors(path)[0], global_scope()
    there = {variable.name for variable in trainer.plan.dense}
    theirs = trainer.blocks.state()
    if other := [n for n in sorted(there) if n in found and not torch.equal(found[n], theirs[n])]:
        raise ConfigError(
            f"{other[0]!r} is on the servers, and has another value there than in {path}; let each server load it, "
            "before it serves: fluid.io.load_persistables(exe, dirname, pserver_program)"
        )
    for name in program.persistables():
        if name in found and name not in there:
            scope.get(name).copy_(found[name])
    trainer.blocks.pull({name: scope.get(name) for name in there})
