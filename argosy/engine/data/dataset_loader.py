"""The loader behind `io.DataLoader`: batches of a data set, by `torch.utils.data.DataLoader`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from argosy.engine.data.arrays import to_tensor
from argosy.engine.data.epoch import ReaderState, discard
from argosy.engine.data.feed import FeedVariable, check_places, fields_of, specs_of
from argosy.engine.data.input_wait import counted
from argosy.engine.data.loader_progress import LoaderProgress
from argosy.engine.data.prefetch import Prefetch
from argosy.engine.data.readers import positive
from argosy.engine.data.samplers import BatchSampler
from argosy.engine.errors import ConfigError

_AHEAD = 2  # batches, as torch's prefetch_factor


class DatasetLoader:
    """Iterate over the batches of a data set.

    With a feed list a batch is `[{name: tensor}]`, what an executor takes as feed, or with
    `return_list=True` the tensors in the list's order, both in the variables' dtypes and shapes.
    Without one, a batch is a list of tensors with the dtypes and shapes of the data set. (`return_list` is False by
    default, as in Paddle 2.0's static graphs.)

    Worker processes always pass their batches in shared memory, so `use_shared_memory` has no effect; the executor
    moves a batch to its place, so `places` is only checked.
    """

    def __init__(  # Paddle's list
        self,
        dataset: Any,
        feed_list: Sequence[FeedVariable] | None = None,
        places: Any = None,
        return_list: bool = False,
        batch_sampler: Iterable[list[int]] | None = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        check_places(places)
        self.dataset = dataset
        self.return_list = return_list
        self.num_workers = num_workers
        self._specs = specs_of(feed_list)
        self._ahead = use_buffer_reader and num_workers == 0
        options: dict[str, Any] = {
            "num_workers": num_workers,
            "collate_fn": collate_fn,
            "timeout": timeout if num_workers else 0,  # without workers there is nothing to wait for
            "worker_init_fn": worker_init_fn,
        }
        if isinstance(dataset, IterableDataset):
            if shuffle or batch_sampler is not None:
                raise ConfigError(
                    "an IterableDataset sets its own order; leave out shuffle and batch_sampler, or shuffle"
                    " inside the data set"
                )
            size = None if batch_size is None else positive("batch_size", batch_size)
            options |= {"batch_size": size, "drop_last": drop_last if size else False}
        elif batch_sampler is not None:
            if batch_size != 1 or shuffle or drop_last:
                raise ConfigError(
                    "batch_sampler sets the batches; leave out batch_size, shuffle and drop_last, or give"
                    " them to the sampler"
                )
            options["batch_sampler"] = batch_sampler
        elif batch_size is None:
            options |= {"batch_size": None, "sampler": BatchSampler(dataset, shuffle=shuffle).sampler}
        else:
            options["batch_sampler"] = BatchSampler(
                dataset, shuffle=shuffle, batch_size=batch_size, drop_last=drop_last
            )
        self.batch_sampler = options.get("batch_sampler")
        self._skipping: _Skipping | None = None
        for name in options.keys() & {"batch_sampler", "sampler"}:
            self._skipping = options[name] = _Skipping(options[name])
        self._progress = LoaderProgress()
        self._batches: TorchLoader[Any] = TorchLoader(dataset, **options)

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch; with `use_buffer_reader` and no workers, a thread reads two batches ahead."""
        # The samplers draw their order here, in the caller's thread, so that a seed set before takes effect.
        batches = iter(self._batches)
        converted: Iterator[Any]
        if self._ahead:
            converted = Prefetch(lambda: map(self._convert, batches), _AHEAD)
        else:
            converted = counted(map(self._convert, batches))
        return self._progress.counted(converted, self.__len__)

    def open_at(self, at: ReaderState | None) -> Iterator[Any]:
        """Resume an epoch at `at`; with a sampler, the samples before it are not read."""
        skip, pause_at = (at.batch, at.ahead) if at else (0, None)
        with self._skipping.skip(skip) if self._skipping else nullcontext():
            batches = iter(self._batches)
        if self._skipping:
            skip = 0
        if not self._ahead:
            discard(batches, skip)
            return counted(map(self._convert, batches))
        if at is not None and not skip:
            at.reader.restore()  # skipped samples draw no random numbers
        return Prefetch(
            lambda: map(self._convert, batches),
            _AHEAD,
            skip=skip,
            pause_at=None if pause_at is None else skip + pause_at,
            records_states=True,
        )

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    def __len__(self) -> int:
        """The number of batches; unknown for an IterableDataset."""
        return len(self._batches)

    def _convert(self, batch: Any) -> Any:
        if not self._specs:
            if isinstance(batch, Mapping):  # named fields: torch has converted them to tensors
                return batch
            fields: Sequence[Any] = batch if isinstance(batch, tuple | list) else (batch,)
            return [to_tensor(f, "field") if isinstance(f, np.ndarray) else f for f in fields]
        fields = fields_of(batch, [spec.name for spec in self._specs])
        tensors = [
            spec.from_batch(field, copy=False) for spec, field in zip(self._specs, fields, strict=True)
        ]
        if self.return_list:
            return tensors
        return [{spec.name: tensor for spec, tensor in zip(self._specs, tensors, strict=True)}]


class _Skipping:
    """A sampler that can skip the first items of the next epoch."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self._skip = 0

    @contextmanager
    def skip(self, count: int) -> Iterator[None]:
        """An epoch that starts inside skips the first `count` items."""
        self._skip = count
        try:
            yield
        finally:
            self._skip = 0

    def __iter__(self) -> Iterator[Any]:
        items = iter(self._sampler)
        discard(items, self._skip)
        return items

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # a sampler without a length: the error is Python's
