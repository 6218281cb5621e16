"""Loading data: data sets, samplers and loaders with Paddle's signatures."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from torch.utils.data import Dataset, IterableDataset, Subset, default_collate, get_worker_info

from argosy.engine.data.dataset_loader import DatasetLoader
from argosy.engine.data.datasets import ChainDataset, ComposeDataset, TensorDataset, random_split
from argosy.engine.data.feed import check_places
from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.data.samplers import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.framework.missing import missing

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "Subset",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "get_worker_info",
    "random_split",
]


class SlotDataset(Protocol):
    """A QueueDataset or InMemoryDataset of `argosy.distributed`."""

    @property
    def batch_size(self) -> int: ...
    def batches(self) -> Any: ...


class DatasetFeeds:
    """The batches of a slot dataset as feeds for the executor; every iteration is an epoch."""

    def __init__(self, dataset: SlotDataset, drop_last: bool) -> None:
        self._dataset, self._drop_last = dataset, drop_last

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        size = self._dataset.batch_size
        with closing(self._dataset.batches()) as feeds:  # stops the readers if the epoch ends early
            for feed in feeds:
                if not self._drop_last or all(len(array) == size for array in feed.values()):
                    yield [feed]

    def __call__(self) -> Iterator[list[dict[str, Any]]]:
        return iter(self)


class DataLoader(DatasetLoader):
    """Batches of a data set (see DatasetLoader), or by `from_generator` of a Python generator."""

    @staticmethod
    def from_generator(  # Paddle's list
        feed_list: Sequence[Any] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """A loader over a Python generator, given by one of its three set_…_generator calls.

        Iterable, it yields feeds for the executor. Not iterable, it belongs to the program of its feed
        variables: after `start()` the executor takes a batch per run, until EOFException; `reset()`.
        The queue of `capacity` batches is the double buffer. `drop_last` concerns Paddle's several
        places per process; a batch here has one place.
        """
        if use_multiprocess:
            logger.warning(
                "use_multiprocess=True: this loader reads in a thread; DataLoader(dataset, num_workers=n)"
                " reads in processes"
            )
        loader = GeneratorLoader(feed_list, capacity, iterable, return_list)
        if not iterable and feed_list:
            feed_list[0].block.program.attach_reader(loader)
        return loader

    @staticmethod
    def from_dataset(dataset: SlotDataset, places: Any, drop_last: bool = True) -> DatasetFeeds:
        """A loader over a QueueDataset or a loaded InMemoryDataset: `for feed in loader(): exe.run(feed=feed)`.

        `drop_last` leaves out a last batch with fewer records.
        """
        if not hasattr(dataset, "batches"):
            raise ConfigError(
                f"from_dataset: {type(dataset).__name__} is not a QueueDataset or InMemoryDataset; for another data "
                "set use DataLoader(dataset)"
            )
        check_places(places)
        return DatasetFeeds(dataset, drop_last)


__getattr__ = missing(__name__, globals())
