"""known_values: sizes and constants are known, what depends on data or is written to is not."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import UnsupportedError
from argosy.engine.ir.known_values import known_values
from argosy.engine.runtime.executor import Executor

layers = fluid.layers


def test_sizes_constants_and_arithmetic_are_known() -> None:
    x = fluid.data("x", [None, 4])
    sizes, three = layers.shape(x), layers.fill_constant([1], "int32", 3)
    batch = layers.slice(sizes, axes=[0], starts=[0], ends=[1])
    known = {
        "[3]": three,
        "[7]": three * 2 + 1,
        "[4]": layers.cast(sizes[1], "int64"),
        "[2]": sizes[1] // 2,
        "[1, 2]": layers.assign(np.array([1, 2], "int64")),
        "[0, 1, 2]": layers.range(0, 3, 1, "int64"),
    }
    for text, variable in known.items():
        assert str(known_values(variable)) == text
    joined = known_values(layers.concat([batch * 2 - 1, three]))
    assert joined is not None
    assert joined[0] == x.size(0) * 2 - 1
    assert joined[1] == 3


def test_data_floats_and_written_variables_are_unknown() -> None:
    ids = fluid.data("ids", [1], "int64")
    counter = layers.fill_constant([1], "int64", 3)
    layers.increment(counter)
    for unknown in (ids, ids + 1, counter, counter + 1, layers.fill_constant([1], "float32", 2.0)):
        assert known_values(unknown) is None


def test_layers_take_variables_as_sizes_and_axes() -> None:
    x = fluid.data("x", [None, 4])
    batch, one = layers.shape(x)[0], layers.fill_constant([1], "int32", 1)
    outs = {
        (3, 8): layers.concat([x, x], axis=one),
        (3, 2): layers.split(x, 2, dim=one)[1],
        (3, 2, 2): layers.reshape(x, [-1, 1], actual_shape=layers.concat([batch, one * 2, one * 2])),
        (3, 1): layers.fill_constant(layers.concat([batch, one]), "float32", 2.0),
        (2, 3): layers.slice(x, [0, 1], [one, one], [batch, one + 3]),
        (6, 2): layers.reshape(x, layers.shape(layers.reshape(x, [-1, 2]))),
        (3,): layers.range(0, batch, 1, "int64"),
    }
    array = np.arange(12, dtype="float32").reshape(3, 4)
    values = Executor().run(feed={"x": array}, fetch_list=list(outs.values()))
    assert [value.shape for value in values] == list(outs)
    np.testing.assert_array_equal(values[1], array[:, 2:])
    np.testing.assert_array_equal(values[4], array[1:, 1:])


def test_a_shape_that_depends_on_data_is_not_supported() -> None:
    x, size = fluid.data("x", [None, 4]), fluid.data("size", [1], "int32")
    for build in (
        lambda: layers.reshape(x, [size, -1]),
        lambda: layers.concat([x, x], axis=size),
        lambda: layers.fill_constant(size, "float32", 0.0),
    ):
        with pytest.raises(UnsupportedError, match="holds Variable 'size', whose value is not known"):
            build()
