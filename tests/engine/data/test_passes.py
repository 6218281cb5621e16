"""Pass: it goes on from a place with the same batches, and reads no sample twice where a sampler tells them."""

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
from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.data.passes import Pass, Place, numbered, pass_counter
from argosy.engine.data.readers import batch, buffered, shuffle
from argosy.engine.data.samplers import DistributedBatchSampler
from argosy.engine.errors import DataError


class Noted:
    """A data set that notes which samples are read, and adds noise."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return np.array([index + np.random.rand() + random.random()])

    def __len__(self) -> int:
        return 12


def plain(item: Any) -> list[float]:
    return [float(number) for number in np.ravel(np.asarray(item[0]))]


def from_json(place: Place) -> Place:
    return Place.from_json(json.loads(json.dumps(place.to_json())))


def drawn() -> tuple[float, float]:
    return random.random(), float(np.random.rand())


def generator_loader(data: Noted) -> GeneratorLoader:
    reader = batch(lambda: (data[i] for i in range(12)), 3)
    return GeneratorLoader(None, 2, return_list=True).set_sample_list_generator(reader)


MAKERS: list[Callable[[Noted], Any]] = [
    lambda data: DatasetLoader(data, batch_size=3, shuffle=True),
    lambda data: DatasetLoader(data, batch_size=3, shuffle=True, use_buffer_reader=False),
    lambda data: DatasetLoader(data, batch_size=None, shuffle=True),
    generator_loader,
    lambda data: batch(lambda: (data[i] for i in range(12)), 3),
    lambda data: [[data[i]] for i in range(12)],
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("taken", [1, 3, 4])
def test_goes_on_from_a_place(make: Callable[[Noted], Any], taken: int) -> None:
    random.seed(5)
    np.random.seed(5)
    loader = make(Noted())
    first = Pass(loader, 0)
    for _ in range(taken):
        next(first)
    time.sleep(0.01)  # a thread has read ahead, and drawn
    place = from_json(first.place())
    rest = [plain(item) for item in first]
    after = drawn()
    drawn()  # the new process is in other states
    again = Pass(loader, 0, place)
    assert again.place().batch == taken
    assert [plain(item) for item in again] == rest
    assert drawn() == after


def test_a_sampler_skips_without_reading() -> None:
    data = Noted()
    first = Pass(DatasetLoader(data, batch_size=3), 0)
    next(first), next(first)
    place = first.place()
    list(first)
    data.read.clear()
    list(Pass(DatasetLoader(data, batch_size=3), 0, place))
    assert data.read == list(range(6, 12))


def test_the_epoch_of_a_distributed_sampler_comes_back() -> None:
    def loader() -> DatasetLoader:
        sampler = DistributedBatchSampler(Noted(), 2, 2, 1, shuffle=True)
        return DatasetLoader(list(range(12)), batch_sampler=sampler)

    one = loader()
    for epoch in range(3):
        first = Pass(one, epoch)
        next(first)
        place = first.place()
        rest = [plain(item) for item in first]
    assert place.sampler_epoch == 2
    other = loader()
    assert [plain(item) for item in Pass(other, 2, place)] == rest
    assert other.batch_sampler.epoch == 3


def test_readers_that_count_their_passes_take_the_number_of_the_pass() -> None:
    reader = shuffle(lambda: iter(range(20)), 20, seed=1)
    passes = [list(reader()) for _ in range(4)]
    fresh = shuffle(lambda: iter(range(20)), 20, seed=1)
    assert list(Pass(buffered(buffered(fresh, 2), 2), 3)) == passes[3]  # through threads, too
    assert list(Pass(fresh, 1)) == passes[1]
    assert list(fresh()) == passes[0]


def test_numbers_of_passes() -> None:
    count = pass_counter(5)
    assert [count(), count()] == [5, 6]
    with numbered(10):
        assert [count(), count()] == [15, 15]
    assert count() == 7


@pytest.mark.parametrize("make", MAKERS[:5])
def test_a_pass_that_has_become_shorter_is_refused(make: Callable[[Noted], Any]) -> None:
    first = Pass([0] * 20, 0)
    list(itertools.islice(first, 13))
    with pytest.raises(DataError, match=r"after batch 13 of a pass, and the pass now ends after \d+; resume"):
        Pass(make(Noted()), 0, first.place())


def test_an_error_of_the_reader_while_it_skips_is_shown() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        raise OSError("disk gone")

    first = Pass([0] * 9, 0)
    list(itertools.islice(first, 3))
    loader = GeneratorLoader(None, 2, return_list=True).set_batch_generator(broken)
    with pytest.raises(OSError, match="disk gone"):
        Pass(loader, 0, first.place())


def test_a_smaller_capacity_than_before_is_no_trouble() -> None:
    def loader(capacity: int) -> GeneratorLoader:
        return GeneratorLoader(None, capacity, return_list=True).set_batch_generator(
            lambda: ([np.array([i])] for i in range(9))
        )

    first = Pass(loader(6), 0)
    next(first)
    deadline = time.monotonic() + 10
    while (place := first.place()).ahead < 6 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert place.ahead == 6
    assert [plain(item) for item in Pass(loader(1), 0, place)] == [[float(i)] for i in range(1, 9)]
