"""gather_rows: all-gather the row gradients of an embedding and their ids.

rank 0   rows [2, D], ids [2] ─┐
rank 1   rows [0, D], ids [0] ─┼─▶ rows [5, D], ids [5] on every rank, in the order of the ranks
rank 2   rows [3, D], ids [3] ─┘
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine import collective
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import rows_of_ids


def _kernel(rows: Tensor, ids: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """`rows` is [*ids.shape, D]; returns rows [n, D] and ids [n] of all ranks."""
    ranks = collective.world().group(group)
    flat = rows.reshape(ids.numel(), rows.shape[-1])  # not -1, which is ambiguous for an empty tensor
    all_rows = ranks.all_gather_rows(flat, what="gather_rows (values)")
    return all_rows, ranks.all_gather_rows(ids.reshape(-1), what="gather_rows (ids)")


def _fake(rows: Tensor, ids: Tensor, group: str) -> tuple[Tensor, Tensor]:
    total = torch.library.get_ctx().new_dynamic_size()  # the sum over the ranks, known at run time
    return rows.new_empty((total, rows.shape[-1])), ids.new_empty((total,))


gather_rows = declare("gather_rows(Tensor rows, Tensor ids, str group) -> (Tensor, Tensor)", _kernel, _fake)
SPEC = OpSpec(gather_rows, _kernel, is_collective=True, verify=rows_of_ids)
