"""viterbi: the path of the greatest score, without rows, and lengths that do not fit; see also fluid's test_crf."""

# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise, product

import pytest
import torch

from argosy.engine.ops.viterbi import viterbi


def test_the_path_has_the_greatest_score() -> None:
    generator = torch.Generator().manual_seed(0)
    x, transition = torch.randn(7, 3, generator=generator), torch.randn(5, 3, generator=generator)
    tags = viterbi(x, torch.tensor([4, 0, 3]), transition).split([4, 0, 3])
    for rows, found in zip(x.split([4, 0, 3]), tags, strict=True):
        if not len(rows):
            continue

        def score(path: tuple[int, ...], rows: torch.Tensor = rows) -> float:
            total = transition[0, path[0]] + transition[1, path[-1]] + rows[range(len(path)), path].sum()
            return float(total + sum(transition[2 + a, b] for a, b in pairwise(path)))

        assert tuple(found.tolist()) == max(product(range(3), repeat=len(rows)), key=score)


def test_no_rows_have_no_tags_and_lengths_must_fit() -> None:
    assert viterbi(torch.zeros(0, 2), torch.tensor([0]), torch.zeros(4, 2)).shape == (0,)
    with pytest.raises(ValueError, match="sum up to 3, and there are 2 rows"):
        viterbi(torch.zeros(2, 2), torch.tensor([3]), torch.zeros(4, 2))
