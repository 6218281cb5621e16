"""Export the tables of parameter servers into a single-process model.

a small table, ids 0 to rows - 1     the whole table, an ordinary parameter
any other (hashed ids)               W@IDS and W@ROWS: the existing rows, looked up by binary search in the ids
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from argosy.distributed.ps.trainer_program import remove_variables
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.keep_known_rows import KeepKnownRows
from argosy.engine.ps.table.table_spec import TableSpec
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime.scope import Scope

_MOST_ROWS = 1 << 24
"""The most rows of a table in a single-process model."""


@contextmanager
def with_tables(program: Program, trainer: Trainer, scope: Scope) -> Iterator[Program]:
    """A test program with its tables in the scope; removes the tables from the scope on exit."""
    test_program = program.clone(for_test=True)
    values: dict[str, Tensor] = {}
    for table in trainer.plan.tables:
        if table.name in test_program.vars:
            values |= _exported(test_program, trainer, table)
    for name, value in values.items():
        scope.put(name, value)
    try:
        yield test_program
    finally:
        scope.erase(list(values))


def _exported(program: Program, trainer: Trainer, table: TableSpec) -> dict[str, Tensor]:
    """The values of a table by variable name; rewrites the program to look rows up by id if the ids are not dense."""
    num_rows = program.var(table.name).shape[0]
    ids = trainer.rows.ids(table.name, _MOST_ROWS)
    if len(ids) > _MOST_ROWS:
        raise ConfigError(
            f"the table {table.name!r} has {len(ids):,} rows, too many for a single-process model; use "
            "fleet.save_persistables and DistributedInfer"
        )
    is_dense = not len(ids) or (ids[0] >= 0 and ids[-1] < num_rows)
    if is_dense and num_rows <= _MOST_ROWS:
        return {table.name: _rows(trainer, table.name, torch.arange(num_rows))}
    known = program.state(f"{table.name}@IDS", [len(ids)], "int64")
    rows = program.state(f"{table.name}@ROWS", [len(ids), table.dim], "float32")
    whole = program.recorder.placeholder_of[program.var(table.name).value]
    rewrite(program, [KeepKnownRows(table, whole, known.node, rows.node)])
    remove_variables(program, [table.name])
    return {known.name: ids, rows.name: _rows(trainer, table.name, ids)}


def _rows(trainer: Trainer, table: str, ids: Tensor, at_once: int = 1 << 16) -> Tensor:
    """The rows of these ids; rows that do not exist yet get their initial values and are not created."""
    return torch.cat(
        [trainer.rows.start_pull(table, part, create=False).wait() for part in ids.split(at_once)]
    )
