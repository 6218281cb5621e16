"""Gradients of rows from several places into one for each row."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor


def merge_rows(parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> tuple[Tensor, Tensor]:
    """Unique ids, sorted, and `scale` times the sum of the gradients of each; ids may repeat in a part too.

    Summed in the order of the parts, so that equal parts give equal bits.
    """
    assert parts, "there is nothing to merge"
    ids, where = torch.unique(torch.cat([part[0] for part in parts]), return_inverse=True)
    total = parts[0][1].new_zeros(len(ids), parts[0][1].shape[1])
    # On the CPU index_add_ goes through the index in its order, on one thread.
    total.index_add_(0, where, torch.cat([part[1] for part in parts]))
    return ids, total if scale == 1.0 else total.mul_(scale)
