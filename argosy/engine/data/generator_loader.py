"""The loader behind `DataLoader.from_generator`: a reader in a thread, and a queue of batches.

iterable       for feed in loader(): exe.run(program, feed=feed)
not iterable   loader.start(); exe.run(program) until EOFException; loader.reset()
"""

# SPDX-License-Identifier: Apache-2.0
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

from argosy.engine.data.arrays import to_tensor
from argosy.engine.data.epoch import ReaderState
from argosy.engine.data.feed import FeedSpec, FeedVariable, check_places, fields_of, specs_of
from argosy.engine.data.loader_progress import LoaderProgress
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.data.prefetch import Prefetch
from argosy.engine.data.readers import batch, check_reader, positive
from argosy.engine.errors import ConfigError, DataError, EOFException

Tensors: TypeAlias = list[torch.Tensor | LoDTensor]
Feed: TypeAlias = dict[str, torch.Tensor | LoDTensor]
Batch: TypeAlias = list[Feed] | Tensors


class GeneratorLoader:
    """Batches from a Python generator, converted to the feed variables and read ahead in a thread.

    At most `capacity` batches are queued. Without a feed list the loader keeps dtypes and shapes, and
    `return_list` must be True, because the tensors have no names.
    """

    def __init__(
        self,
        feed_list: Sequence[FeedVariable] | None,
        capacity: int | None,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        if capacity is None:
            raise ConfigError(
                "capacity is missing; give the number of batches to read ahead, for example capacity=16"
            )
        self.capacity = positive("capacity", capacity)
        self.iterable = iterable
        self._return_list = return_list
        self._specs = specs_of(feed_list)
        self._source: Callable[[], Iterable[Tensors]] | None = None
        self._started: Prefetch[Feed] | None = None
        self._progress = LoaderProgress()
        self._running: weakref.WeakSet[Prefetch[Any]] = weakref.WeakSet()
        if not self._specs and not (iterable and return_list):
            raise ConfigError(
                "feed_list is empty, so batches have no names; give the variables, or iterable=True and"
                " return_list=True for plain lists"
            )
        if return_list and not iterable:
            raise ConfigError(
                "return_list=True with iterable=False: a started loader passes its batches to the executor;"
                " leave out one of the two"
            )

    @property
    def feed_names(self) -> tuple[str, ...]:
        """The names of the feed variables, in the order of the feed list."""
        return tuple(spec.name for spec in self._specs)

    @property
    def is_started(self) -> bool:
        """True between `start` and `reset`: the executor takes batches from the loader."""
        return self._started is not None

    def set_sample_generator(
        self, reader: Callable[[], Iterable[Any]], batch_size: int, drop_last: bool = True, places: Any = None
    ) -> "GeneratorLoader":
        """Take single samples from the reader and make batches of them."""
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(
        self, reader: Callable[[], Iterable[Sequence[Any]]], places: Any = None
    ) -> "GeneratorLoader":
        """Take lists of samples from the reader, as `batch` makes them."""
        check_reader(reader)
        stack = partial(_stack, self._specs)
        return self._set_source(lambda: map(stack, reader()), places)

    def set_batch_generator(
        self, reader: Callable[[], Iterable[Any]], places: Any = None
    ) -> "GeneratorLoader":
        """Take whole batches from the reader: one array per variable, the samples along dimension 0."""
        check_reader(reader)
        convert = partial(_convert, self._specs)
        return self._set_source(lambda: map(convert, reader()), places)

    def __iter__(self) -> Iterator[Batch]:
        """Start an epoch; several may run at once, and deleting the iterator stops its thread."""
        return self._progress.counted(self.open_at(None))

    def open_at(self, at: ReaderState | None) -> Iterator[Batch]:
        """Resume an epoch at `at`: the batches before it are read again and dropped."""
        if not self.iterable:
            raise ConfigError(
                "this loader was created with iterable=False and cannot be iterated; call start() and run the"
                " program without feed, or create it with iterable=True"
            )
        source = self._checked_source()
        if self._return_list:
            return self._run(source, at)
        names = self.feed_names
        return self._run(lambda: ([dict(zip(names, t, strict=True))] for t in source()), at)

    def __call__(self) -> Iterator[Batch]:
        return iter(self)

    def start(self) -> None:
        """Start an epoch; the executor then takes one batch per run."""
        self._raise_if_iterable("start")
        source = self._checked_source()
        if self._started is not None:
            raise ConfigError("start() on a loader that is running; call reset() first")
        names = self.feed_names
        self._started = self._run(lambda: (dict(zip(names, t, strict=True)) for t in source()))

    def reset(self) -> None:
        """Stop the epoch, at its end or in the middle; start() begins the next."""
        self._raise_if_iterable("reset")
        self.close()

    def next_feed(self) -> Feed:
        """The next batch of a started loader by variable name; EOFException when there is none."""
        self._raise_if_iterable("next_feed")
        if self._started is None:
            raise ConfigError("the loader is not started; call start() before each epoch")
        for feed in self._started:
            return feed
        raise EOFException("the reader has no more batches; call reset(), then start() for another epoch")

    def close(self) -> None:
        """Stop every thread of this loader; running iterations end."""
        self._started = None
        for running in list(self._running):
            running.close()

    def _run(self, source: Callable[[], Iterable[Any]], at: ReaderState | None = None) -> Prefetch[Any]:
        skip, pause_at = (at.batch, at.batch + at.ahead) if at else (0, None)
        running: Prefetch[Any] = Prefetch(source, self.capacity, skip=skip, pause_at=pause_at)
        self._running.add(running)
        return running

    def _set_source(self, source: Callable[[], Iterable[Tensors]], places: Any) -> "GeneratorLoader":
        check_places(places)
        self._source = source
        return self

    def _checked_source(self) -> Callable[[], Iterable[Tensors]]:
        if self._source is None:
            raise ConfigError(
                "the loader has no data; call set_sample_generator, set_sample_list_generator or"
                " set_batch_generator first"
            )
        return self._source

    def _raise_if_iterable(self, call: str) -> None:
        if self.iterable:
            raise ConfigError(
                f"{call}() on a loader created with iterable=True; write `for feed in loader():`, or create it"
                " with iterable=False"
            )


# Functions, not methods: a thread that references the loader would keep it, and so itself, alive forever.


def _stack(specs: Sequence[FeedSpec], samples: Sequence[Any]) -> Tensors:
    """A list of samples as one tensor per field."""
    if not samples:
        raise DataError("the reader gave an empty list of samples; leave it out, or end the epoch")
    if not specs:  # nothing is declared: the fields are those of the first sample
        first = samples[0] if isinstance(samples[0], tuple | list) else (samples[0],)
        tensors = [to_tensor(field, f"field {i}") for i, field in enumerate(first)]
        specs = [FeedSpec(f"field {i}", (-1, *t.shape), t.dtype) for i, t in enumerate(tensors)]
    names = [spec.name for spec in specs]
    columns = zip(*(fields_of(sample, names) for sample in samples), strict=True)
    return [spec.from_samples(column) for spec, column in zip(specs, columns, strict=True)]


def _convert(specs: Sequence[FeedSpec], arrays: Any) -> Tensors:
    """A batch of arrays as tensors."""
    if not specs:
        arrays = arrays if isinstance(arrays, tuple | list) else (arrays,)
        return [to_tensor(array, f"field {i}", copy=True) for i, array in enumerate(arrays)]
    fields = fields_of(arrays, [spec.name for spec in specs])
    return [spec.from_batch(field) for spec, field in zip(specs, fields, strict=True)]
