"""fluid.data, fluid.one_hot and fluid.embedding of 1.x.

They take shapes as they are: fluid.layers.data adds a batch dimension, and the others of fluid.layers drop a last
dimension of 1 of the ids.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.missing import missing
from argosy.framework.variant import variant
from argosy.static import input as static_input
from argosy.static.nn import embedding
from argosy.tensor.arguments import number

__all__ = ["data", "embedding", "one_hot"]


@variant(static_input.data, dtype="float32")
def data() -> Any:
    """A variable to feed; None or -1 in the shape is a size that may differ between runs."""


def one_hot(input: Variable, depth: int, allow_out_of_range: bool = False) -> Any:
    """float32 of the shape of the ids + [depth], with a 1 at each id.

    An id outside of 0 … depth - 1 fails, or gives zeros if allow_out_of_range.
    """
    return apply("one_hot_v2", spread, input, int(number("one_hot: depth", depth)), allow_out_of_range)


def spread(ids: Tensor, depth: int, allow_out_of_range: bool) -> Tensor:
    """The ids in a new last dimension of this size."""
    ids = ids.long().unsqueeze(-1)
    if allow_out_of_range:
        return (ids == torch.arange(depth)).float()
    return torch.zeros(*ids.shape[:-1], depth).scatter(-1, ids, 1.0)


__getattr__ = missing(__name__, globals())
