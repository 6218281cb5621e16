"""Samplers: the order, the batches and the rank in which the samples of a data set are read."""

# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset
from torch.utils.data import Sampler as TorchSampler

from argosy.engine import env
from argosy.engine.data.datasets import length_of
from argosy.engine.data.readers import positive
from argosy.engine.errors import ConfigError


class Sampler(TorchSampler[int]):
    """The base class of samplers: `__iter__` returns sample numbers."""

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError(
            f"{type(self).__name__} does not define __iter__, which returns the sample numbers"
        )


class SequenceSampler(Sampler):
    """0, 1, 2, … to the end of the data."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return length_of(self.data_source)


class RandomSampler(Sampler):
    """All samples in random order, or `num_samples` draws with replacement.

    The numbers come from NumPy's global generator, as in Paddle (`numpy.random.seed` repeats them),
    or from `generator`, an iterator of sample numbers.
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Iterator[int] | None = None,
    ) -> None:
        super().__init__(data_source)
        if num_samples is not None and not replacement:
            raise ConfigError(f"num_samples={num_samples} needs replacement=True; set it, or leave both out")
        self.replacement = replacement
        self.num_samples = positive(
            "num_samples", length_of(data_source) if num_samples is None else num_samples
        )
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        # Drawn at once, not item by item: the order must not depend on other draws meanwhile.
        if self.generator is not None:
            return itertools.islice(self.generator, self.num_samples)
        if self.replacement:
            return iter(np.random.randint(0, length_of(self.data_source), self.num_samples).tolist())
        return iter(np.random.permutation(length_of(self.data_source)).tolist())

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(Sampler):
    """`num_samples` draws of sample numbers, each with a probability proportional to its weight.

    Without replacement, `num_samples` is at most the number of positive weights. The numbers come from NumPy's global
    generator, as in Paddle.
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True) -> None:
        super().__init__()
        values = np.asarray(weights, dtype=np.float64).reshape(-1)
        if not values.size or not np.isfinite(values).all() or values.min() < 0 or values.sum() <= 0:
            raise ConfigError("weights must be finite and not negative, and at least one of them positive")
        self.num_samples = positive("num_samples", num_samples)
        if not replacement and self.num_samples > np.count_nonzero(values):
            raise ConfigError(
                f"num_samples={num_samples} without replacement, and {np.count_nonzero(values)} positive weights; draw "
                "fewer, or set replacement=True"
            )
        self.weights = values
        self.replacement = replacement

    def __iter__(self) -> Iterator[int]:
        probabilities = self.weights / self.weights.sum()
        draws = np.random.choice(
            len(probabilities), self.num_samples, replace=self.replacement, p=probabilities
        )
        return iter(draws.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(TorchSampler[list[int]]):
    """Lists of `batch_size` sample numbers, from a data set (in order or shuffled) or from a sampler."""

    def __init__(
        self,
        dataset: Any = None,
        sampler: Iterable[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if (dataset is None) == (sampler is None):
            raise ConfigError("give either a dataset or a sampler, and not both")
        if sampler is not None and shuffle:
            raise ConfigError("shuffle=True with a sampler, which sets the order; leave out one of them")
        if isinstance(dataset, IterableDataset):
            raise ConfigError("an IterableDataset has no sample numbers; pass it to DataLoader directly")
        if sampler is None:
            sampler = RandomSampler(dataset) if shuffle else SequenceSampler(dataset)
        self.sampler = sampler
        self.batch_size = positive("batch_size", batch_size)
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return _batches(iter(self.sampler), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return _num_batches(length_of(self.sampler), self.batch_size, self.drop_last)


class DistributedBatchSampler(BatchSampler):
    """The batches of one rank; all ranks get equally many, so that no rank waits for another.

    9 samples, 2 ranks, batch_size=3:

        rank 0   [0 1 2]           [6 7]
        rank 1           [3 4 5]         [8 0]

    The data is padded with its first samples to a multiple of the ranks, and the last batches are
    divided evenly. With `shuffle` the order is
    `numpy.random.RandomState(epoch)`'s, equal on all ranks and in Paddle; each epoch adds 1 to it.
    """

    def __init__(  # Paddle's list
        self,
        dataset: Any,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            this_rank, size = env.rank_and_size()
            rank = this_rank if rank is None else rank
            num_replicas = size if num_replicas is None else num_replicas
        self.nranks = positive("num_replicas", num_replicas)
        if not 0 <= rank < self.nranks:
            raise ConfigError(f"rank {rank} of {self.nranks}; use 0 to {self.nranks - 1}")
        self.local_rank = rank
        self.dataset = dataset
        self.batch_size = positive("batch_size", batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0
        self.num_samples = -(-positive("the length of the data set", length_of(dataset)) // self.nranks)
        self.total_size = self.num_samples * self.nranks

    def __iter__(self) -> Iterator[list[int]]:
        order = list(itertools.islice(itertools.cycle(range(length_of(self.dataset))), self.total_size))
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        return _batches(iter(self._shard(order)), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return _num_batches(self.num_samples, self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Set the number that seeds the next shuffle; a resumed run sets the epoch it resumes."""
        self.epoch = epoch

    def _shard(self, order: list[int]) -> list[int]:
        """The samples of this rank: whole batches round-robin; the rest is divided evenly."""
        step = self.batch_size * self.nranks
        full = self.total_size - self.total_size % step
        rest = (self.total_size - full) // self.nranks
        starts = range(self.local_rank * self.batch_size, full, step)
        last = full + self.local_rank * rest
        return [i for s in starts for i in order[s : s + self.batch_size]] + order[last : last + rest]


def _batches(samples: Iterator[int], size: int, drop_last: bool) -> Iterator[list[int]]:
    while group := list(itertools.islice(samples, size)):
        if len(group) == size or not drop_last:
            yield group


def _num_batches(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else -(-samples // size)
