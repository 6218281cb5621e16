"""Save and load the variables and tables of parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection
from pathlib import Path

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import ServerRole
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime import atomic_files, server_files
from argosy.engine.runtime.scope import global_scope
from argosy.engine.runtime.server_files import send_pending_changes
from argosy.engine.runtime.server_loop import saved_in


def save_persistables(trainer: Trainer, program: Program, path: Path) -> None:
    """Save parameters and optimizer state from the servers, tables (each server its shard), and local variables."""
    scope = global_scope()
    send_pending_changes(trainer, scope)
    local = {n: scope.get(n) for n in program.persistables() if scope.values_of().get(n) is not None}
    server_files.save(trainer, local, path)


def load_on_server(program: Program, path: Path, tables: Collection[str] | None = None) -> None:
    """Make a server load a save of any number of servers; `tables`: load only these, and no parameters."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"there is no directory {str(path.parent)!r}; give one that save_persistables wrote"
        )
    assert isinstance(program.role, ServerRole), f"{program.name} is not a server's program"
    program.role = saved_in(program.role, path, tables)


def load_on_trainer(trainer: Trainer, program: Program, path: Path) -> None:
    """Load the variables of this trainer; the servers must have loaded theirs from the same file."""
    saved, scope = atomic_files.read_tensors(path)[0], global_scope()
    on_servers = {variable.name for variable in trainer.plan.dense}
    server_values = trainer.blocks.state()
    if different := [
        n for n in sorted(on_servers) if n in saved and not torch.equal(saved[n], server_values[n])
    ]:
        raise ConfigError(
            f"{different[0]!r} has a different value on the servers than in {path}; let each server load it "
            "before it serves: fluid.io.load_persistables(exe, dirname, pserver_program)"
        )
    for name in program.persistables():
        if name in saved and name not in on_servers:
            scope.get(name).copy_(saved[name])
    trainer.blocks.pull({name: scope.get(name) for name in on_servers})
