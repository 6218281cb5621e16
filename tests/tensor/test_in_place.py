"""The functions with an underscore compute the same as those without."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch

from argosy import tensor


def test_they_compute_the_same(agree: Callable[..., None]) -> None:
    agree(
        lambda x: [
            tensor.reshape_(x, [-1, 3]),
            tensor.squeeze_(x, 1),
            tensor.unsqueeze_(x, 0),
            tensor.tanh_(x),
        ],
        lambda x: [x.reshape(-1, 3), x.squeeze(1), x.unsqueeze(0), x.tanh()],
        (None, 1, 3),
    )


def test_scatter_replaces_rows(agree: Callable[..., None]) -> None:
    agree(
        lambda x, rows: tensor.scatter_(x, tensor.to_tensor([2, 0]), rows),
        lambda x, rows: torch.stack([rows[1], x[1], rows[0]]),
        (3, 2),
        (2, 2),
    )
