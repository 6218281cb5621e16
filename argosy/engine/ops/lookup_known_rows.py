"""lookup_known_rows: look ids up in a sparse table, for a model that runs without parameter servers.

    known   [-3, 5, 70]   sorted        ids [5, 6]  ──▶  searchsorted  ──▶  row of 5, initial values of 6
    rows    [3, dim]

An id without a row has the initial values that a server would give it; they depend only on the initializer, the
table's name and the id. So the model returns for every id what the servers would that it was exported from.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ps.table.table_spec import RowInit, first_values


def _lookup(
    ids: Tensor, known: Tensor, rows: Tensor, init: str, a: float, b: float, seed: int, table: str
) -> Tensor:
    _check(known, rows, table)
    flat, dim = ids.reshape(-1).to(torch.int64), rows.shape[1]
    result = rows.new_empty(len(flat), dim)
    is_known = torch.zeros_like(flat, dtype=torch.bool)
    if len(known):
        indices = torch.searchsorted(known, flat).clamp_(max=len(known) - 1)
        is_known = known[indices] == flat
        result = rows.index_select(0, indices)
    unknown = flat[~is_known]
    if len(unknown):
        initial = first_values(RowInit(init, a, b, seed), table, unknown.cpu(), dim)
        result[~is_known] = initial.to(result.device)
    return result.view(*ids.shape, dim)


def _check(known: Tensor, rows: Tensor, table: str) -> None:
    has_dtypes = known.dtype is torch.int64 and rows.dtype is torch.float32
    if not has_dtypes or known.ndim != 1 or rows.ndim != 2 or len(known) != len(rows):
        shown = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (known, rows)]
        raise ConfigError(
            f"the table {table!r} has {known.numel()} ids ({shown[0]}) and rows {shown[1]}; a model needs int64 ids "
            "and as many float32 rows: export it again"
        )


def _fake(ids: Tensor, known: Tensor, rows: Tensor, *_: object) -> Tensor:
    return rows.new_empty((*ids.shape, rows.shape[1]))


lookup_known_rows = declare(
    "lookup_known_rows(Tensor ids, Tensor known, Tensor rows, str init, float a, float b, int seed, str table) "
    "-> Tensor",
    _lookup,
    _fake,
)
SPEC = OpSpec(lookup_known_rows, _lookup)
