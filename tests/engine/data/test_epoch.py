"""EpochIterator: resumes from a state with the same batches; with a sampler it reads no sample twice."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from argosy.engine.data.dataset_loader import DatasetLoader
from argosy.engine.data.epoch import EpochIterator, ReaderState, epoch_counter, epoch_number
from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.data.readers import batch, buffered, shuffle
from argosy.engine.data.samplers import DistributedBatchSampler
from argosy.engine.errors import DataError


class Recorded:
    """A data set that records which samples are read, and adds noise."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return np.array([index + np.random.rand() + random.random()])

    def __len__(self) -> int:
        return 12


def plain(item: Any) -> list[float]:
    return [float(number) for number in np.ravel(np.asarray(item[0]))]


def from_json(state: ReaderState) -> ReaderState:
    return ReaderState.from_json(json.loads(json.dumps(state.to_json())))


def drawn() -> tuple[float, float]:
    return random.random(), float(np.random.rand())


def generator_loader(data: Recorded) -> GeneratorLoader:
    reader = batch(lambda: (data[i] for i in range(12)), 3)
    return GeneratorLoader(None, 2, return_list=True).set_sample_list_generator(reader)


MAKERS: list[Callable[[Recorded], Any]] = [
    lambda data: DatasetLoader(data, batch_size=3, shuffle=True),
    lambda data: DatasetLoader(data, batch_size=3, shuffle=True, use_buffer_reader=False),
    lambda data: DatasetLoader(data, batch_size=None, shuffle=True),
    generator_loader,
    lambda data: batch(lambda: (data[i] for i in range(12)), 3),
    lambda data: [[data[i]] for i in range(12)],
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("taken", [1, 3, 4])
def test_resumes_from_a_state(make: Callable[[Recorded], Any], taken: int) -> None:
    random.seed(5)
    np.random.seed(5)
    loader = make(Recorded())
    first = EpochIterator(loader, 0)
    for _ in range(taken):
        next(first)
    time.sleep(0.01)  # a thread has read ahead, and drawn
    state = from_json(first.state())
    rest = [plain(item) for item in first]
    after = drawn()
    drawn()  # the new process has other random states
    resumed = EpochIterator(loader, 0, state)
    assert resumed.state().batch == taken
    assert [plain(item) for item in resumed] == rest
    assert drawn() == after


def test_a_sampler_skips_without_reading() -> None:
    data = Recorded()
    first = EpochIterator(DatasetLoader(data, batch_size=3), 0)
    next(first), next(first)
    state = first.state()
    list(first)
    data.read.clear()
    list(EpochIterator(DatasetLoader(data, batch_size=3), 0, state))
    assert data.read == list(range(6, 12))


def test_the_epoch_of_a_distributed_sampler_is_restored() -> None:
    def loader() -> DatasetLoader:
        sampler = DistributedBatchSampler(Recorded(), 2, 2, 1, shuffle=True)
        return DatasetLoader(list(range(12)), batch_sampler=sampler)

    first_loader = loader()
    for epoch in range(3):
        first = EpochIterator(first_loader, epoch)
        next(first)
        state = first.state()
        rest = [plain(item) for item in first]
    assert state.sampler_epoch == 2
    other = loader()
    assert [plain(item) for item in EpochIterator(other, 2, state)] == rest
    assert other.batch_sampler.epoch == 3


def test_readers_that_count_epochs_take_the_given_number() -> None:
    reader = shuffle(lambda: iter(range(20)), 20, seed=1)
    epochs = [list(reader()) for _ in range(4)]
    fresh = shuffle(lambda: iter(range(20)), 20, seed=1)
    assert list(EpochIterator(buffered(buffered(fresh, 2), 2), 3)) == epochs[3]  # through threads, too
    assert list(EpochIterator(fresh, 1)) == epochs[1]
    assert list(fresh()) == epochs[0]


def test_epoch_numbers() -> None:
    count = epoch_counter(5)
    assert [count(), count()] == [5, 6]
    with epoch_number(10):
        assert [count(), count()] == [15, 15]
    assert count() == 7


@pytest.mark.parametrize("make", MAKERS[:5])
def test_an_epoch_that_has_become_shorter_is_rejected(make: Callable[[Recorded], Any]) -> None:
    first = EpochIterator([0] * 20, 0)
    list(itertools.islice(first, 13))
    with pytest.raises(
        DataError, match=r"after batch 13 of an epoch, and the epoch now ends after \d+; resume"
    ):
        EpochIterator(make(Recorded()), 0, first.state())


def test_an_error_of_the_reader_while_it_skips_is_raised() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        raise OSError("disk gone")

    first = EpochIterator([0] * 9, 0)
    list(itertools.islice(first, 3))
    loader = GeneratorLoader(None, 2, return_list=True).set_batch_generator(broken)
    with pytest.raises(OSError, match="disk gone"):
        EpochIterator(loader, 0, first.state())


def test_a_smaller_capacity_than_before_works() -> None:
    def loader(capacity: int) -> GeneratorLoader:
        return GeneratorLoader(None, capacity, return_list=True).set_batch_generator(
            lambda: ([np.array([i])] for i in range(9))
        )

    first = EpochIterator(loader(6), 0)
    next(first)
    deadline = time.monotonic() + 10
    while (state := first.state()).ahead < 6 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert state.ahead == 6
    assert [plain(item) for item in EpochIterator(loader(1), 0, state)] == [[float(i)] for i in range(1, 9)]
