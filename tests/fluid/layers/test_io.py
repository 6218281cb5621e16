"""fluid.layers.py_reader and its relatives feed a program until EOFException."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError


def samples() -> Iterator[Any]:
    for i in range(4):
        yield np.full(3, i, "float32"), i


def epoch(exe: Any, program: Any, fetch: Any) -> list[float]:
    values = []
    while True:
        try:
            values.append(exe.run(program, fetch_list=[fetch])[0].item())
        except fluid.core.EOFException:
            return values


def test_a_py_reader_feeds_epochs_and_the_test_program_shares_it() -> None:
    reader = fluid.layers.py_reader(
        capacity=2, shapes=[(-1, 3), (-1, 1)], dtypes=["float32", "int64"], name="train"
    )
    x, y = fluid.layers.read_file(fluid.layers.double_buffer(reader))
    assert (x.name, x.shape, y.dtype) == ("train_data_0", (-1, 3), fluid.data("i", [1], "int64").dtype)
    total = fluid.layers.reduce_sum(x) + fluid.layers.cast(fluid.layers.reduce_sum(y), "float32")
    test_program = fluid.default_main_program().clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    reader.decorate_paddle_reader(fluid.io.batch(samples, 2))
    for program in (fluid.default_main_program(), test_program, fluid.default_main_program().clone()):
        reader.start()
        assert epoch(exe, program, total) == [4.0, 20.0]
        reader.reset()
    reader.decorate_tensor_provider(lambda: iter([[np.ones((5, 3)), np.ones((5, 1), "int64")]]))
    reader.start()
    assert epoch(exe, None, total) == [20.0]
    reader.reset()


def test_a_py_reader_feeds_ragged_variables() -> None:
    reader = fluid.layers.py_reader(2, [(-1, 1), (-1, 1)], ["int64", "float32"], lod_levels=[1, 0])
    ids, y = fluid.layers.read_file(reader)
    sums = fluid.layers.sequence_pool(fluid.layers.cast(ids, "float32"), "sum")
    exe = fluid.Executor(fluid.CPUPlace())
    reader.decorate_paddle_reader(lambda: iter([[([1, 2, 3], 0.5), ([4], 1.5)], [([5, 6], 2.5)]]))
    reader.start()
    batches = [exe.run(fetch_list=[sums, y]) for _ in range(2)]
    assert [[value.ravel().tolist() for value in batch] for batch in batches] == [
        [[6.0, 4.0], [0.5, 1.5]],
        [[11.0], [2.5]],
    ]
    reader.reset()


def test_a_reader_of_one_existing_variable() -> None:
    x = fluid.data("x", [None, 2])
    reader = fluid.layers.create_py_reader_by_data(capacity=1, feed_list=[x])
    assert fluid.layers.read_file(reader) is x
    assert fluid.default_main_program().readers == (reader,)


def test_what_does_not_fit_together_raises() -> None:
    with pytest.raises(ConfigError, match="2 shapes, 1 dtypes"):
        fluid.layers.py_reader(4, [(-1, 1), (-1, 1)], ["float32"])
    with pytest.raises(ConfigError, match="list is not a reader"):
        fluid.layers.read_file([1])
