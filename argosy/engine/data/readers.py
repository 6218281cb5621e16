"""Readers and their decorators.

A reader is a function without arguments; each call starts one epoch and returns an
iterable of samples. A decorator takes readers and returns a reader; nothing is read before the
result is called.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from argosy.engine import env
from argosy.engine.data.epoch import epoch_counter
from argosy.engine.data.prefetch import Prefetch
from argosy.engine.errors import ArgumentTypeError, ConfigError, DataError

T = TypeVar("T")
S = TypeVar("S")


class ComposeNotAligned(DataError):
    """Composed readers have different lengths."""


def positive(name: str, value: int) -> int:
    """The value as an int of 1 or more, else a ConfigError with the argument's name."""
    try:
        number = operator.index(value)
    except TypeError as e:
        raise ArgumentTypeError(f"{name} is {value!r}; use an integer of 1 or more") from e
    if number < 1:
        raise ConfigError(f"{name} is {number}; use an integer of 1 or more")
    return number


def check_reader(reader: object) -> None:
    """Raise ConfigError unless this is a reader; a common mistake is to pass `reader()` instead of `reader`."""
    if not callable(reader):
        raise ArgumentTypeError(
            f"a reader is a function that returns an iterable, but this is {type(reader).__name__};"
            " pass the function itself, without calling it"
        )


def batch(
    reader: Callable[[], Iterable[T]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[T]]]:
    """Group samples into lists of `batch_size`; the last one may be shorter, or is dropped."""
    check_reader(reader)
    size = positive("batch_size", batch_size)

    def batched() -> Iterator[list[T]]:
        samples = iter(reader())
        while group := list(itertools.islice(samples, size)):
            if len(group) == size or not drop_last:
                yield group

    return batched


def shard(
    reader: Callable[[], Iterable[T]], num_shards: int | None = None, index: int | None = None
) -> Callable[[], Iterator[T]]:
    """The shard of this rank: every `num_shards`-th sample from `index` on (default: one shard per rank).

        reader    0 1 2   3 4 5   6 7        3 shards
        index 0   0       3                  all ranks get the same number of samples:
        index 1     1       4                an incomplete last round is dropped
        index 2       2       5

    Every rank reads every sample and drops those of the others: shard before you map or decode. Shuffle before with
    the same seed on all ranks, or after; with different seeds before, ranks would see samples twice.
    """
    check_reader(reader)
    if (num_shards is None) != (index is None):
        raise ConfigError(
            f"shard: num_shards={num_shards}, index={index}; give both, or none for the ranks of the job"
        )
    if num_shards is None or index is None:
        position, shards = env.rank_and_size()
    else:
        position, shards = index, positive("num_shards", num_shards)
    if position not in range(shards):
        raise ConfigError(f"shard: index {position!r} of {shards} shards; use 0 to {shards - 1}")

    def sharded() -> Iterator[T]:
        samples = iter(reader())
        while len(round_ := list(itertools.islice(samples, shards))) == shards:
            yield round_[position]

    return sharded


def map_readers(func: Callable[..., T], *readers: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[T]]:
    """`func` of one sample of every reader; ends with the shortest."""
    return lambda: map(func, *(reader() for reader in readers))


def shuffle(
    reader: Callable[[], Iterable[T]], buf_size: int, *, seed: int | None = None, epoch: int = 0
) -> Callable[[], Iterator[T]]:
    """Shuffle inside a buffer of `buf_size` samples.

    Without a seed the order comes from Python's `random`, as in Paddle. With one, it depends on the
    seed and the number of the epoch alone (the first is `epoch`): equal on all ranks and, if a
    checkpoint counts the epochs, after a resume.
    """
    size = positive("buf_size", buf_size)
    next_epoch = epoch_counter(epoch)

    def shuffled() -> Iterator[T]:
        # A separate generator even without a seed: other code may use the global one meanwhile.
        key = [random.getrandbits(64)] if seed is None else [seed, next_epoch()]
        rng = np.random.default_rng(key)
        for buffer in batch(reader, size)():
            for index in rng.permutation(len(buffer)):
                yield buffer[index]

    return shuffled


def chain(*readers: Callable[[], Iterable[T]]) -> Callable[[], Iterator[T]]:
    """All samples of the first reader, then all of the second, and so on."""
    return lambda: itertools.chain.from_iterable(reader() for reader in readers)


def compose(
    *readers: Callable[[], Iterable[Any]], check_alignment: bool = True
) -> Callable[[], Iterator[tuple[Any, ...]]]:
    """Join the samples of several readers into one: `(1, 2)`, `3`, `(4, 5)` give `(1, 2, 3, 4, 5)`.

    Readers of different lengths raise ComposeNotAligned, unless `check_alignment` is False: then the
    shortest ends it.
    """

    def composed() -> Iterator[tuple[Any, ...]]:
        streams = [iter(reader()) for reader in readers]
        for number in itertools.count() if streams else ():
            fields = [next(stream, _END) for stream in streams]
            ended = [i for i, field in enumerate(fields) if field is _END]
            if ended and check_alignment and len(ended) < len(fields):
                raise ComposeNotAligned(
                    f"readers {ended} of {len(fields)} ended after {number} samples, the others did not;"
                    " compose readers of one length, or pass check_alignment=False to drop the rest"
                )
            if ended:
                return
            yield tuple(itertools.chain.from_iterable(f if isinstance(f, tuple) else (f,) for f in fields))

    return composed


_END: Any = object()


def buffered(reader: Callable[[], Iterable[T]], size: int) -> Callable[[], Iterator[T]]:
    """Let a thread read up to `size` samples ahead."""
    capacity = positive("size", size)
    return lambda: Prefetch(reader, capacity)


def firstn(reader: Callable[[], Iterable[T]], n: int) -> Callable[[], Iterator[T]]:
    """At most the first `n` samples."""
    if n < 0:
        raise ConfigError(f"n is {n}; use 0 or more")
    return lambda: itertools.islice(reader(), n)


def cache(reader: Callable[[], Iterable[T]]) -> Callable[[], Iterator[T]]:
    """Read all samples in the first epoch, keep them in memory, and never call `reader` again."""
    samples: list[tuple[T, ...]] = []

    def cached() -> Iterator[T]:
        if not samples:
            samples.append(tuple(reader()))
        return iter(samples[0])

    return cached


def xmap_readers(
    mapper: Callable[[S], T],
    reader: Callable[[], Iterable[S]],
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Callable[[], Iterator[T]]:
    """Map samples in `process_num` threads, at most `buffer_size` of them in progress or ready.

    With `order` the samples keep the order of the reader, else they are returned as they get ready. Threads help if
    the mapper releases the GIL, as image decoding and array arithmetic do.
    """
    threads = positive("process_num", process_num)
    capacity = positive("buffer_size", buffer_size)
    return lambda: Prefetch(reader, capacity, work=mapper, threads=threads, ordered=order)
