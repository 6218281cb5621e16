"""partial_concat and partial_sum take columns of several matrices."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch

from argosy import static
from argosy.fluid.contrib import layers


def test_columns_side_by_side_and_added(agree: Callable[..., None]) -> None:
    agree(
        lambda x, y: [
            layers.partial_concat([x, y], 1, 2),
            layers.partial_sum([x, y], 1),
            layers.partial_sum(x),
        ],
        lambda x, y: [torch.cat([x[:, 1:3], y[:, 1:3]], 1), x[:, 1:] + y[:, 1:], x],
        (None, 4),
        (None, 4),
    )
    assert layers.sparse_embedding is static.nn.sparse_embedding
