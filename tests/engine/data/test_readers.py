"""Reader decorators: what comes out, in which order, and how often the reader is called."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine.data.readers import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shard,
    shuffle,
    xmap_readers,
)
from argosy.engine.errors import ConfigError

samples = st.lists(st.integers(), max_size=40)
sizes = st.integers(1, 12)


def reader_of(values: list[int]) -> Callable[[], Iterator[int]]:
    return lambda: iter(values)


@given(samples, sizes)
def test_batches_put_together_are_the_samples(values: list[int], size: int) -> None:
    groups = list(batch(reader_of(values), size)())
    assert [v for group in groups for v in group] == values
    assert all(len(group) == size for group in groups[:-1])


@given(samples, sizes)
def test_drop_last_keeps_full_batches_only(values: list[int], size: int) -> None:
    groups = list(batch(reader_of(values), size, drop_last=True)())
    assert [len(group) for group in groups] == [size] * (len(values) // size)


@pytest.mark.parametrize("size", [0, -3, 2.5, "8", None])
def test_a_batch_size_that_is_no_positive_integer_is_rejected(size: object) -> None:
    with pytest.raises(ConfigError, match=r"batch_size .* 1 or more"):
        batch(reader_of([1]), size)  # type: ignore[arg-type]  # the point of the test


def test_a_called_reader_is_rejected_with_the_advice_not_to_call_it() -> None:
    with pytest.raises(ConfigError, match="without calling it"):
        batch(reader_of([1])(), 2)  # type: ignore[arg-type]  # the point of the test


@given(samples, sizes)
def test_shuffle_is_a_permutation_within_each_buffer(values: list[int], size: int) -> None:
    mixed = list(shuffle(reader_of(values), size)())
    for start in range(0, len(values), size):
        assert Counter(mixed[start : start + size]) == Counter(values[start : start + size])


def test_shuffle_follows_the_global_random_without_a_seed() -> None:
    mixed = shuffle(reader_of(list(range(50))), 50)
    random.seed(7)
    first = list(mixed())
    random.seed(7)
    assert list(mixed()) == first != sorted(first)


def test_a_seeded_shuffle_differs_by_epoch_and_can_be_resumed_at_one() -> None:
    source = reader_of(list(range(50)))
    run = shuffle(source, 50, seed=3)
    epochs = [list(run()) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert list(shuffle(source, 50, seed=3, epoch=2)()) == epochs[2]


@given(st.lists(samples, max_size=4))
def test_chain_puts_one_reader_after_the_other(lists: list[list[int]]) -> None:
    assert list(chain(*map(reader_of, lists))()) == [v for values in lists for v in values]


@given(samples, st.integers(0, 50))
def test_firstn_takes_a_prefix(values: list[int], n: int) -> None:
    assert list(firstn(reader_of(values), n)()) == values[:n]


def test_firstn_reads_not_one_sample_more() -> None:
    read: list[int] = []

    def reader() -> Iterator[int]:
        for i in range(10):
            read.append(i)
            yield i

    assert list(firstn(reader, 3)()) == read == [0, 1, 2]


def test_map_readers_joins_samples_by_a_function() -> None:
    both = map_readers(lambda a, b: a + b, reader_of([1, 2, 3]), reader_of([10, 20, 30]))
    assert list(both()) == list(both()) == [11, 22, 33]


def test_compose_joins_tuples_and_single_values() -> None:
    pairs: Callable[[], Iterator[tuple[int, int]]] = lambda: iter([(1, 2), (3, 4)])  # noqa: E731
    assert list(compose(pairs, reader_of([5, 6]))()) == [(1, 2, 5), (3, 4, 6)]


def test_compose_rejects_readers_of_different_lengths() -> None:
    with pytest.raises(ComposeNotAligned, match=r"readers \[1\] of 2 ended after 1 samples"):
        list(compose(reader_of([1, 2]), reader_of([3]))())


def test_compose_takes_none_for_a_value_and_not_for_the_end() -> None:
    nothing: Callable[[], Iterator[None]] = lambda: iter([None, None])  # noqa: E731
    assert list(compose(nothing, reader_of([1, 2]))()) == [(None, 1), (None, 2)]


def test_compose_without_the_check_ends_with_the_shortest() -> None:
    assert list(compose(reader_of([1, 2]), reader_of([3]), check_alignment=False)()) == [(1, 3)]


def test_compose_of_nothing_is_empty() -> None:
    assert list(compose()()) == []


def test_cache_reads_once() -> None:
    calls: list[int] = []

    def reader() -> Iterator[int]:
        calls.append(1)
        yield from (1, 2, 3)

    cached = cache(reader)
    assert list(cached()) == list(cached()) == [1, 2, 3]
    assert len(calls) == 1


def test_buffered_reads_in_another_thread() -> None:
    names = set(buffered(lambda: (threading.current_thread().name for _ in range(3)), 2)())
    assert names == {"argosy-reader"}


def test_buffered_passes_on_the_error_of_the_reader() -> None:
    with pytest.raises(ZeroDivisionError):
        list(buffered(lambda: (1 // (2 - i) for i in range(5)), 2)())


@given(samples, st.integers(1, 4), sizes, st.booleans())
def test_xmap_maps_every_sample_once(values: list[int], threads: int, size: int, order: bool) -> None:
    mapped = list(xmap_readers(lambda v: v * 2, reader_of(values), threads, size, order)())
    assert (mapped if order else sorted(mapped)) == [v * 2 for v in (values if order else sorted(values))]


def test_xmap_works_in_as_many_threads_as_asked() -> None:
    at_once = threading.Barrier(3)

    def mapper(i: int) -> int:
        at_once.wait(timeout=10)  # passes only if three samples are in work at the same time
        return i

    assert list(xmap_readers(mapper, reader_of(list(range(9))), 3, 8, order=True)()) == list(range(9))


def test_xmap_stops_at_the_error_of_a_mapper_and_leaves_no_thread() -> None:
    def mapper(i: int) -> int:
        if i == 5:
            raise RuntimeError("sample 5 is damaged")
        time.sleep(0.001)
        return i

    mapped = xmap_readers(mapper, reader_of(list(range(1000))), 4, 16, order=True)()
    assert [next(mapped) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="sample 5 is damaged"):
        next(mapped)
    assert not [t for t in threading.enumerate() if t.name == "argosy-reader"]


def test_every_epoch_starts_from_the_beginning() -> None:
    reader = batch(xmap_readers(abs, buffered(reader_of([1, 2, 3]), 2), 2, 2, order=True), 2)
    assert list(reader()) == list(reader()) == [[1, 2], [3]]


@given(samples, st.integers(1, 5))
def test_shards_have_equal_length_and_together_are_the_complete_rounds(
    values: list[int], shards: int
) -> None:
    parts = [list(shard(reader_of(values), shards, index)()) for index in range(shards)]
    rounds = len(values) // shards
    assert [v for turn in zip(*parts, strict=True) for v in turn] == values[: rounds * shards]
    assert all(len(part) == rounds for part in parts)


def test_a_shard_is_of_the_ranks_of_the_job_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(shard(reader_of([0, 1, 2]))()) == [0, 1, 2]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    mine = shard(reader_of(list(range(8))))
    assert list(mine()) == list(mine()) == [1, 4]


def test_a_shard_that_there_is_not_is_rejected() -> None:
    with pytest.raises(ConfigError, match="index 3 of 3 shards; use 0 to 2"):
        shard(reader_of([]), 3, 3)
    with pytest.raises(ConfigError, match="num_shards is 0"):
        shard(reader_of([]), 0, 0)
    with pytest.raises(ConfigError, match="num_shards=2, index=None; give both"):
        shard(reader_of([]), 2)
