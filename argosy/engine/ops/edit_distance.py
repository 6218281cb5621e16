"""edit_distance: the Levenshtein distance between the sequences of two batches.

A row of the table of distances is computed for all pairs at once; the dependence on the left neighbour in a row,
d[j] = min(t[j], d[j - 1] + 1), is a running minimum of t[j] - j.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(ids: Tensor, lengths: Tensor, others: Tensor, other_lengths: Tensor) -> Tensor:
    """The distances, [sequences] float32."""
    first, second = _padded(ids, lengths), _padded(others, other_lengths)
    if len(first) != len(second):
        raise ValueError(f"edit_distance: {len(first)} sequences, and {len(second)} of the other batch")
    columns = torch.arange(second.shape[1] + 1, device=ids.device)
    table = columns.expand(len(first), -1)
    for step in range(first.shape[1]):
        differs = (second != first[:, step : step + 1]).to(torch.int64)
        inner = torch.minimum(table[:, 1:] + 1, table[:, :-1] + differs)
        row = torch.cat([table.new_full((len(first), 1), step + 1), inner], 1)
        row = (row - columns).cummin(1).values + columns
        table = torch.where((lengths > step).unsqueeze(1), row, table)
    return table.gather(1, other_lengths.unsqueeze(1)).squeeze(1).to(torch.float32)


def _padded(ids: Tensor, lengths: Tensor) -> Tensor:
    if bool((lengths < 0).any()) or int(lengths.sum()) != len(ids):
        raise ValueError(f"the lengths sum up to {int(lengths.sum())}, and there are {len(ids)} ids")
    longest = int(lengths.max()) if len(lengths) else 0
    is_inside = torch.arange(longest, device=ids.device) < lengths.unsqueeze(1)
    return ids.new_zeros(is_inside.shape).masked_scatter_(is_inside, ids)


edit_distance = declare(
    "edit_distance(Tensor ids, Tensor lengths, Tensor others, Tensor other_lengths) -> Tensor",
    _kernel,
    lambda ids, lengths, others, other_lengths: lengths.new_empty(lengths.shape, dtype=torch.float32),
)
SPEC = OpSpec(edit_distance, _kernel)
