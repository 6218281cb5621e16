"""GeneratorLoader: three kinds of readers, two ways to run it, and no thread left behind."""

import gc
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.data.feed import FeedSpec
from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, DataError, EOFException

FEEDS = [FeedSpec("x", (-1, 2, 3), torch.float32), FeedSpec("y", (-1, 1), torch.int64)]


def samples() -> Iterator[tuple[Any, int]]:
    for i in range(10):
        yield np.full(6, i), i


def endless() -> Iterator[tuple[Any, int]]:
    while True:
        yield np.zeros(6), 0


def threads() -> int:
    return sum(t.name == "argosy-reader" for t in threading.enumerate())


def loader(**options: Any) -> GeneratorLoader:
    return GeneratorLoader(FEEDS, 4, **options)


def test_samples_become_feeds_of_batches() -> None:
    feeds = list(loader().set_sample_generator(samples, batch_size=4)())
    assert len(feeds) == 2
    [feed] = feeds[1]
    assert isinstance(feed, dict)
    assert list(feed) == ["x", "y"]
    assert feed["x"].shape == (4, 2, 3)
    assert feed["y"].tolist() == [[4], [5], [6], [7]]


def test_the_last_short_batch_is_kept_if_asked() -> None:
    feeds: list[Any] = list(loader().set_sample_generator(samples, 4, drop_last=False))
    assert [len(feed[0]["y"]) for feed in feeds] == [4, 4, 2]


def test_lists_of_samples_are_stacked() -> None:
    feeds: list[Any] = list(loader().set_sample_list_generator(lambda: [[(np.zeros(6), 1), (np.ones(6), 2)]]))
    assert feeds[0][0]["y"].tolist() == [[1], [2]]


def test_samples_of_any_length_feed_a_ragged_variable() -> None:
    spec = FeedSpec("ids", (-1, 1), torch.int64, lod_level=1)
    source = GeneratorLoader([spec, FEEDS[1]], 4)
    feeds: list[Any] = list(source.set_sample_generator(lambda: [([1, 2], 0), ([], 1), ([3], 2)], 3))
    assert feeds[0][0]["ids"].recursive_sequence_lengths() == [[2, 0, 1]]
    whole = LoDTensor.of_lengths(np.ones((2, 1), np.int64), [[2]])
    feeds = list(source.set_batch_generator(lambda: [(whole, np.zeros(1, np.int64))]))
    assert feeds[0][0]["ids"] is whole


def test_batches_are_converted() -> None:
    feeds: list[Any] = list(loader().set_batch_generator(lambda: [(np.zeros((5, 6)), np.arange(5))]))
    assert feeds[0][0]["x"].shape == (5, 2, 3)
    assert feeds[0][0]["y"].shape == (5, 1)


def test_return_list_gives_plain_lists() -> None:
    batches: list[Any] = list(loader(return_list=True).set_sample_generator(samples, 5))
    assert [t.shape for t in batches[0]] == [(5, 2, 3), (5, 1)]


def test_without_a_feed_list_dtypes_and_shapes_stay() -> None:
    plain = GeneratorLoader(None, 2, return_list=True)
    batches: list[Any] = list(plain.set_sample_generator(samples, 5))
    assert [(t.shape, t.dtype) for t in batches[0]] == [((5, 6), torch.int64), ((5,), torch.int64)]
    arrays: list[Any] = list(plain.set_batch_generator(lambda: [(np.zeros((3, 2), np.float32),)]))
    assert arrays[0][0].dtype == torch.float32


def test_every_iteration_is_a_new_pass_even_at_the_same_time() -> None:
    source = loader().set_sample_generator(samples, 5)
    first, second = iter(source), iter(source)
    next(first)
    assert len(list(second)) == 2
    assert len(list(first)) == 1


def test_a_wrong_sample_stops_the_loop_with_the_name_of_the_variable() -> None:
    with pytest.raises(DataError, match=r"'x'.*\(5,\).*expects \(2, 3\)"):
        list(loader().set_sample_generator(lambda: [(np.zeros(5), 1)], 1))


def test_an_empty_list_of_samples_is_rejected() -> None:
    with pytest.raises(DataError, match="empty list"):
        list(loader().set_sample_list_generator(lambda: [[]]))


def test_an_error_of_the_reader_arrives_with_its_traceback() -> None:
    def reader_with_a_bug() -> Iterator[Any]:
        yield from samples()
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone") as caught:
        list(loader().set_sample_generator(reader_with_a_bug, 4))
    assert "reader_with_a_bug" in "".join(traceback.format_tb(caught.value.__traceback__))


def test_leaving_the_loop_in_the_middle_ends_the_thread() -> None:
    for _ in loader().set_sample_generator(endless, 2)():
        break
    assert threads() == 0


def test_close_ends_iterations_that_are_under_way() -> None:
    source = loader().set_sample_generator(endless, 2)
    stream = source()
    next(stream)
    assert threads() == 1
    source.close()
    assert threads() == 0
    assert list(stream) == []


def test_an_iteration_outlives_its_loader() -> None:
    stream = loader().set_sample_generator(samples, 2)()
    gc.collect()
    assert len(list(stream)) == 5


def test_a_started_loader_gives_feeds_until_the_end_of_file() -> None:
    source = loader(iterable=False).set_sample_generator(samples, 4)
    for _ in range(2):
        source.start()
        assert source.next_feed()["y"].tolist() == [[0], [1], [2], [3]]
        assert set(source.next_feed()) == set(source.feed_names) == {"x", "y"}
        for _ in range(2):
            with pytest.raises(EOFException, match=r"reset\(\)"):
                source.next_feed()
        source.reset()


def test_reset_in_the_middle_starts_over() -> None:
    source = loader(iterable=False).set_sample_generator(endless, 4)
    source.start()
    source.next_feed()
    source.reset()
    assert threads() == 0
    with pytest.raises(ConfigError, match=r"call start\(\)"):
        source.next_feed()


def test_a_started_loader_that_is_forgotten_ends_its_thread() -> None:
    source = loader(iterable=False).set_sample_generator(endless, 4)
    source.start()
    source.next_feed()
    del source
    gc.collect()
    assert threads() == 0


def test_an_error_of_the_reader_reaches_next_feed() -> None:
    source = loader(iterable=False).set_sample_generator(lambda: (1 / 0 for _ in range(3)), 1)
    source.start()
    with pytest.raises(ZeroDivisionError):
        source.next_feed()
    source.reset()


def test_start_twice_is_rejected() -> None:
    source = loader(iterable=False).set_sample_generator(samples, 4)
    source.start()
    with pytest.raises(ConfigError, match=r"reset\(\) first"):
        source.start()
    source.reset()


def test_each_mode_says_how_to_use_the_other() -> None:
    with pytest.raises(ConfigError, match=r"start\(\) .*for feed in loader"):
        loader().set_sample_generator(samples, 4).start()
    with pytest.raises(ConfigError, match="iterable=True"):
        iter(loader(iterable=False).set_sample_generator(samples, 4))


def test_a_loader_without_data_says_what_to_call() -> None:
    with pytest.raises(ConfigError, match="set_sample_generator"):
        iter(loader())


@pytest.mark.parametrize("capacity", [None, 0, -1])
def test_capacity_must_be_given(capacity: int | None) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        GeneratorLoader(FEEDS, capacity)


def test_batches_without_names_must_be_lists() -> None:
    with pytest.raises(ConfigError, match="return_list=True"):
        GeneratorLoader([], 2)
    with pytest.raises(ConfigError, match="leave out one"):
        GeneratorLoader(FEEDS, 2, iterable=False, return_list=True)


def test_no_more_than_capacity_batches_wait() -> None:
    produced: list[int] = []

    def batches() -> Iterator[Any]:
        for i in range(100):
            produced.append(i)
            yield np.zeros((1, 6)), np.zeros(1)

    stream = loader().set_batch_generator(batches)()
    deadline = time.monotonic() + 10
    while len(produced) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)  # time to read too far
    assert len(produced) == 4
    del stream
