"""Data sets: items, lengths, and what does not fit together."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

from argosy.engine.data.datasets import ChainDataset, ComposeDataset, TensorDataset, length_of, random_split
from argosy.engine.errors import ConfigError


class Squares(Dataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, index: int) -> int:
        return index * index

    def __len__(self) -> int:
        return self.size


class Count(IterableDataset[int]):
    def __init__(self, start: int, end: int) -> None:
        self.range = range(start, end)

    def __iter__(self) -> Iterator[int]:
        return iter(self.range)


def test_a_tensor_dataset_gives_rows_of_every_tensor() -> None:
    pairs = TensorDataset([torch.arange(6).reshape(3, 2), np.array([7, 8, 9])])
    assert len(pairs) == 3
    row, label = pairs[1]
    assert (row.tolist(), label) == ([2, 3], 8)


@pytest.mark.parametrize("lengths", [[3, 4], []])
def test_tensors_of_different_lengths_are_rejected(lengths: list[int]) -> None:
    with pytest.raises(ConfigError, match="all of one length"):
        TensorDataset([torch.zeros(n) for n in lengths])


def test_a_composed_dataset_joins_fields() -> None:
    both = ComposeDataset([Squares(3), TensorDataset([np.array([4, 5, 6]), np.array([7, 8, 9])])])
    assert len(both) == 3
    assert both[2] == (4, 6, 9)
    with pytest.raises(ConfigError, match=r"lengths \[3, 4\]"):
        ComposeDataset([Squares(3), Squares(4)])


def test_a_chained_dataset_continues_with_the_next() -> None:
    assert list(ChainDataset([Count(0, 2), Count(5, 7)])) == [0, 1, 5, 6]
    with pytest.raises(ConfigError, match="Squares is not an IterableDataset"):
        ChainDataset([Squares(3)])  # type: ignore[list-item]  # the point of the test


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_a_random_split_shares_no_sample_and_loses_none(lengths: list[int], seed: int) -> None:
    parts = random_split(range(sum(lengths)), lengths, torch.Generator().manual_seed(seed))
    assert [len(part) for part in parts] == lengths
    assert sorted(part[i] for part in parts for i in range(len(part))) == list(range(sum(lengths)))


def test_a_random_split_must_add_up() -> None:
    with pytest.raises(ConfigError, match="add up to 9, the data set has 10"):
        random_split(range(10), [4, 5])


def test_a_dataset_without_length_is_named() -> None:
    with pytest.raises(ConfigError, match="Count has no __len__"):
        length_of(Count(0, 3))
