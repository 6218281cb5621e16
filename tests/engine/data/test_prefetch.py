"""Prefetch: what is read ahead, how errors arrive, and that no thread is left."""

import gc
import random
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from argosy.engine.data.prefetch import Prefetch
from argosy.engine.errors import ConfigError, DataError
from tests.ranks import ForkServer


def threads() -> int:
    return sum(t.name == "argosy-reader" for t in threading.enumerate())


def test_returns_the_items_of_the_source() -> None:
    assert list(Prefetch(lambda: range(100), 3)) == list(range(100))


def test_many_threads_keep_the_order() -> None:
    def work(i: int) -> int:
        time.sleep(0.001 * (i % 3))
        return i * i

    assert list(Prefetch(lambda: range(60), 8, work=work, threads=4)) == [i * i for i in range(60)]


def test_without_order_a_slow_item_does_not_block_the_others() -> None:
    event = threading.Event()

    def work(i: int) -> int:
        if i == 0:
            event.wait(10)
        return i

    stream = Prefetch(lambda: range(5), 5, work=work, threads=2, ordered=False)
    quick = [next(stream) for _ in range(4)]
    event.set()
    assert sorted(quick) == [1, 2, 3, 4]
    assert list(stream) == [0]


def test_reads_no_further_ahead_than_the_capacity() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for i in range(100):
            read.append(i)
            yield i

    stream: Prefetch[int] = Prefetch(source, 4, threads=2)
    for expected in (4, 5, 6):
        deadline = time.monotonic() + 10
        while len(read) < expected and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)  # time to read too far
        assert len(read) == expected
        next(stream)


def test_an_error_of_the_source_comes_after_the_items_before_it_with_its_traceback() -> None:
    def broken_source() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("page 3")

    stream: Prefetch[int] = Prefetch(broken_source, 8)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(KeyError, match="page 3") as caught:
        next(stream)
    assert "broken_source" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert list(stream) == []


def test_a_source_that_fails_at_the_start_raises() -> None:
    def no_file() -> Iterator[int]:
        raise FileNotFoundError("list.txt")

    with pytest.raises(FileNotFoundError, match=r"list\.txt"):
        next(Prefetch(no_file, 1))


@pytest.mark.parametrize("ordered", [True, False])
def test_an_error_of_the_work_reaches_the_consumer(ordered: bool) -> None:
    with pytest.raises(ZeroDivisionError):
        list(Prefetch(lambda: range(-5, 5), 4, work=lambda i: 1 / i, threads=3, ordered=ordered))


def test_stop_iteration_of_a_mapper_is_an_error() -> None:
    with pytest.raises(DataError, match="StopIteration"):
        list(Prefetch(lambda: range(3), 4, work=lambda i: next(iter(()))))


def test_close_stops_the_threads_and_the_reader() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    stream: Prefetch[int] = Prefetch(source, 2, threads=3)
    next(stream)
    assert threads() == 3
    stream.close()
    assert threads() == 0
    assert closed.is_set()
    assert list(stream) == []


def test_deleting_the_iterator_in_the_middle_stops_the_threads() -> None:
    for _ in Prefetch(lambda: iter(int, 1), 2):
        break
    assert threads() == 0


def test_a_chain_stops_from_the_outside_in() -> None:
    outer: Prefetch[int] = Prefetch(lambda: Prefetch(lambda: iter(int, 1), 2), 2)
    next(outer)
    assert threads() == 2
    del outer
    gc.collect()
    assert threads() == 0


def test_an_open_iterator_does_not_block_the_exit_of_the_program(ranks: ForkServer) -> None:
    script = (
        "from argosy.engine.data.prefetch import Prefetch\n"
        "stream = Prefetch(lambda: iter(int, 1), 2, threads=2)\n"
        "print(next(stream))\n"
    )
    done = ranks.python("-c", script, FULL_EXIT="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(("capacity", "threads"), [(0, 1), (1, 0)])
def test_a_capacity_of_zero_is_rejected(capacity: int, threads: int) -> None:
    with pytest.raises(ConfigError, match="use 1 or more"):
        Prefetch[int](lambda: range(3), capacity, threads=threads)


def test_skips_items_and_pauses_at_the_given_one() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for i in range(9):
            read.append(i)
            yield i

    stream: Prefetch[int] = Prefetch(source, 2, skip=3, pause_at=7)
    assert stream.wait_paused() == 0
    assert read == list(range(7))  # although the capacity is two
    stream.resume()
    assert list(stream) == [3, 4, 5, 6, 7, 8]


def test_returns_how_many_items_it_could_not_skip() -> None:
    stream: Prefetch[int] = Prefetch(lambda: range(2), 2, skip=5, pause_at=6)
    assert stream.wait_paused() == 3
    assert list(stream) == []


def test_reads_nothing_while_it_is_paused() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for i in range(100):
            read.append(i)
            yield i

    stream: Prefetch[int] = Prefetch(source, 3, records_states=True)
    assert next(stream) == 0
    ahead, _ = stream.pause()
    count = len(read)
    assert count == 1 + ahead
    for i in range(ahead):
        assert next(stream) == 1 + i
    time.sleep(0.02)
    assert len(read) == count
    stream.resume()
    assert list(stream) == list(range(1 + ahead, 100))


def test_records_the_states_before_each_item() -> None:
    def source() -> Iterator[float]:
        for _ in range(9):
            yield random.random()

    random.seed(3)
    wanted = list(source())
    random.seed(3)
    stream: Prefetch[float] = Prefetch(source, 3, records_states=True, pause_at=4)
    stream.wait_paused()
    stream.resume()
    assert next(stream) == wanted[0]
    ahead, states = stream.pause()
    assert ahead >= 3
    assert states is not None
    stream.close()
    states.restore()
    assert random.random() == wanted[1]
