"""Readers in processes, for Python code that holds the GIL: one process per reader."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from argosy.engine.data.readers import check_reader, positive
from argosy.engine.errors import ConfigError


class _ReaderOfWorker(IterableDataset[Any]):
    """Worker process i iterates over reader i."""

    def __init__(self, readers: Sequence[Callable[[], Iterable[Any]]]) -> None:
        self._readers = readers

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None, "read in a worker process only"
        return iter(self._readers[worker.id]())


def multiprocess_reader(
    readers: Sequence[Callable[[], Iterable[Any]]], use_pipe: bool = True, queue_size: int = 1000
) -> Callable[[], Iterator[Any]]:
    """The samples of all readers, each of which runs in a process; the readers alternate until all have ended.

    At most about `queue_size` samples are read ahead. An exception of a reader is raised in this process. `use_pipe`
    chooses between two transports of Paddle and has no effect: there is one.
    """
    if not isinstance(readers, list | tuple) or not readers:
        raise ConfigError("multiprocess_reader: give a list of one or more readers")
    for reader in readers:
        check_reader(reader)
    ahead = max(1, positive("queue_size", queue_size) // len(readers))

    def read() -> Iterator[Any]:
        return iter(
            DataLoader(
                _ReaderOfWorker(readers),
                batch_size=None,
                collate_fn=_unchanged,
                num_workers=len(readers),
                prefetch_factor=ahead,
            )
        )

    return read


def _unchanged(sample: Any) -> Any:
    return sample
