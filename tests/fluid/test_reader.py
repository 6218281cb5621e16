"""fluid.io.PyReader: the three decorate calls, iterable and started."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from argosy import fluid


def samples() -> Iterator[Any]:
    for i in range(5):
        yield np.full(2, i), [i]


def values(reader: Any) -> list[list[int]]:
    return [feed[0]["y"].flatten().tolist() for feed in reader()]


def test_an_iterable_reader_yields_feeds() -> None:
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    reader = fluid.io.PyReader(feed_list=[x, y], capacity=2, iterable=True)
    reader.decorate_sample_generator(samples, batch_size=2, places=fluid.cpu_places(1))
    assert values(reader) == [[0, 1], [2, 3]]
    reader.decorate_sample_list_generator(fluid.io.batch(samples, 3))
    assert values(reader) == [[0, 1, 2], [3, 4]]
    reader.decorate_batch_generator(lambda: iter([(np.zeros((1, 2)), np.array([[7]]))]))
    assert values(reader) == [[7]]
    listed = fluid.io.PyReader([x, y], 2, return_list=True)
    listed.decorate_sample_generator(samples, batch_size=4)
    assert [[tuple(t.shape) for t in batch] for batch in listed()] == [[(4, 2), (4, 1)]]


def test_a_started_reader_feeds_its_program() -> None:
    x = fluid.data("x", [None, 2])
    reader = fluid.io.PyReader([x], capacity=2, iterable=False)
    total = fluid.layers.reduce_sum(x)
    reader.decorate_batch_generator(lambda: iter([np.ones((3, 2))]))
    exe = fluid.Executor()
    for _ in range(2):
        reader.start()
        assert exe.run(fetch_list=[total])[0].item() == 6
        with pytest.raises(fluid.core.EOFException):
            exe.run(fetch_list=[total])
        reader.reset()
