"""Loading data: data sets, samplers and loaders with Paddle's signatures."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Subset, get_worker_info

from argosy.engine.data.dataset_loader import DatasetLoader
from argosy.engine.data.datasets import ChainDataset, ComposeDataset, TensorDataset, random_split
from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.data.samplers import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
)
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
    "get_worker_info",
    "random_split",
]


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


__getattr__ = missing(__name__, globals())
