"""sequence_pool and sequence_softmax agree with loops over the sequences, also for empty ones."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.errors import ConfigError
from argosy.static import nn
from tests.ragged import Sequences, check

REDUCTIONS = {
    "sum": lambda s: s.sum(0),
    "average": lambda s: s.mean(0),
    "sqrt": lambda s: s.sum(0) / len(s) ** 0.5,
    "max": lambda s: s.amax(0),
    "last": lambda s: s[-1],
    "first": lambda s: s[0],
}


def pooled(sequences: Sequences, kind: str, pad: float) -> Tensor:
    return torch.stack([REDUCTIONS[kind](s) if len(s) else torch.full(s.shape[1:], pad) for s in sequences])


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_pooling_gives_a_row_for_each_sequence(kind: str) -> None:
    out = check(lambda x: nn.sequence_pool(x, kind, pad_value=0.5), lambda s: pooled(s, kind, 0.5))
    assert out.lod_level == 0


def test_pooling_pads_with_zeros_by_default_and_keeps_other_dimensions() -> None:
    check(
        lambda x: torch.cat([nn.sequence_pool(x, "SUM"), nn.sequence_pool(x, "max")], 1),
        lambda s: torch.cat([pooled(s, "sum", 0.0), pooled(s, "max", 0.0)], 1),
        shapes=[(2, 2)],
    )


def test_the_first_and_the_last_step_are_rows() -> None:
    check(
        lambda x: nn.sequence_first_step(x) - 2 * nn.sequence_last_step(x),
        lambda s: pooled(s, "first", 0.0) - 2 * pooled(s, "last", 0.0),
    )


def test_the_softmax_of_each_sequence_sums_up_to_one() -> None:
    out = check(nn.sequence_softmax, lambda s: [torch.softmax(each, 0) for each in s], shapes=[(1,)])
    assert out.lod_level == 1
    with pytest.raises(ConfigError, match="one number for each row"):
        nn.sequence_softmax(static.data("wide", [None, 2], lod_level=1))


def test_a_dense_variable_and_an_unknown_type_are_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"'x' \(float32\[-1, 3\]\) has no sequences; declare .* lod_level=1"
    ):
        nn.sequence_pool(static.data("x", [None, 3]), "sum")
    with pytest.raises(ConfigError, match="pool_type='mean' is not known; use one of sum, average"):
        nn.sequence_pool(static.data("y", [None, 3], lod_level=1), "mean")
