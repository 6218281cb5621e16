"""edit_distance: known distances, empty sequences, and batches that do not fit; see also fluid's test_sequence."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.edit_distance import edit_distance


def ids(*words: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([ord(c) for c in "".join(words)], dtype=torch.int64), torch.tensor(
        list(map(len, words))
    )


def test_known_distances() -> None:
    first, second = ids("kitten", "saturday", "", "abc"), ids("sitting", "sunday", "xy", "")
    assert edit_distance(*first, *second).tolist() == [3, 3, 2, 3]
    assert edit_distance(*ids("", ""), *ids("", "")).tolist() == [0, 0]


def test_batches_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(ValueError, match="1 sequences, and 2 of the other batch"):
        edit_distance(*ids("a"), *ids("a", "b"))
    with pytest.raises(ValueError, match="sum up to 2, and there are 1 ids"):
        edit_distance(ids("a")[0], torch.tensor([2]), *ids("a"))
