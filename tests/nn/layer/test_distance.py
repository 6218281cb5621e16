"""PairwiseDistance is torch's."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch.nn.functional as F

from argosy import nn


def test_it_is_torch_s(agree: Callable[..., None]) -> None:
    agree(
        lambda x, y: [nn.PairwiseDistance()(x, y), nn.PairwiseDistance(1, keepdim=True)(x, y)],
        lambda x, y: [F.pairwise_distance(x, y), F.pairwise_distance(x, y, 1, keepdim=True)],
        (None, 3),
        (None, 3),
    )
