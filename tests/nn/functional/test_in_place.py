"""relu_, elu_, softmax_ and tanh_ compute the same as those without the underscore."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch
import torch.nn.functional as F

from argosy.nn import functional


def test_they_compute_the_same(agree: Callable[..., None]) -> None:
    agree(
        lambda x: [functional.relu_(x), functional.elu_(x), functional.softmax_(x), functional.tanh_(x)],
        lambda x: [torch.relu(x), F.elu(x), torch.softmax(x, -1), torch.tanh(x)],
        (None, 3),
    )
