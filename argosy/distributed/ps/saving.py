"""Saving what the servers keep."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.engine.ir.program import Program
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime import store
from argosy.engine.runtime.scope import global_scope


def save_persistables(trainer: Trainer, program: Program, path: Path) -> None:
    """Everything: parameters and optimizer state from the servers, tables by each server, the rest from here."""
    scope = global_scope()
    here = {n: scope.get(n) for n in program.persistables() if scope.values_of().get(n) is not None}
    values = {**here, **trainer.blocks.state()}
    path.parent.mkdir(parents=True, exist_ok=True)
    sums = store.checksums(values)
    store.replace_files({path: store.tensor_writer(values, sums, store.save_id(sums))})
    if trainer.plan.tables:
        trainer.save_tables(str(path.parent.absolute()))
