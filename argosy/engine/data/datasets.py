"""Data sets with Paddle's names and arguments over `torch.utils.data`.

`Dataset`, `IterableDataset`, `Subset` and `get_worker_info` are torch's: a torch data set works
wherever Argosy takes one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from argosy.engine.errors import ConfigError


def length_of(dataset: object) -> int:
    """The number of samples of a data set; ConfigError if it has no __len__."""
    if not isinstance(dataset, Sized):
        raise ConfigError(
            f"{type(dataset).__name__} has no __len__, which is needed here; define it, or make the data"
            " set an IterableDataset"
        )
    return len(dataset)


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Sample i is item i of every tensor (or array)."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1:
            raise ConfigError(f"tensors with first dimensions {lengths}; give one or more, all of one length")
        self.tensors = tensors

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class ComposeDataset(Dataset[tuple[Any, ...]]):
    """Sample i is the concatenated fields of sample i of every data set."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        lengths = [length_of(dataset) for dataset in self.datasets]
        if len(set(lengths)) != 1:
            raise ConfigError(f"data sets of lengths {lengths}; give one or more, all of one length")

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        samples = (dataset[index] for dataset in self.datasets)
        return tuple(field for s in samples for field in (s if isinstance(s, tuple | list) else (s,)))

    def __len__(self) -> int:
        return length_of(self.datasets[0])


class ChainDataset(IterableDataset[Any]):
    """The samples of the first iterable data set, then those of the second, and so on."""

    def __init__(self, datasets: Iterable[IterableDataset[Any]]) -> None:
        self.datasets = list(datasets)
        if others := [type(d).__name__ for d in self.datasets if not isinstance(d, IterableDataset)]:
            raise ConfigError(f"{', '.join(others)} is not an IterableDataset; ChainDataset takes only those")

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset


def random_split(
    dataset: Any, lengths: Sequence[int], generator: torch.Generator | None = None
) -> list[Subset[Any]]:
    """Split at random into parts of the given lengths that share no sample."""
    if sum(lengths) != length_of(dataset):
        raise ConfigError(
            f"lengths {list(lengths)} add up to {sum(lengths)}, the data set has {length_of(dataset)}"
            " samples; make them equal"
        )
    order = torch.randperm(sum(lengths), generator=generator).tolist()
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, lengths, strict=True)]
