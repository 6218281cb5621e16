"""Feeds: a missing last dimension, data loaders of clones, and feeds beside a started loader."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError, EOFException, FeedError
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.io import DataLoader
from argosy.static.io import normalize_program

layers = fluid.layers


def test_only_a_missing_last_dimension_of_one_is_added() -> None:
    x, y = layers.data("x", [1]), fluid.data("y", [None, 2, 1])
    exe, vector = Executor(), np.arange(3, dtype="float32")
    (value,) = exe.run(feed={"x": vector}, fetch_list=[x + 1])
    np.testing.assert_array_equal(value, vector[:, None] + 1)
    assert exe.run(feed={"y": np.ones((3, 2), "float32")}, fetch_list=[y * 2])[0].shape == (3, 2, 1)
    wrong: list[tuple[str, tuple[int, ...]]] = [
        ("x", ()),
        ("x", (3, 2)),
        ("x", (3, 1, 1)),
        ("y", (6,)),
        ("y", (3, 3)),
    ]
    for name, shape in wrong:
        with pytest.raises(FeedError, match=f"feed '{name}' has shape"):
            exe.run(feed={name: np.ones(shape, "float32")}, fetch_list=[x if name == "x" else y])


def batches() -> Iterator[list[Any]]:
    for i in range(3):
        yield [np.full((2, 4), i, "float32"), np.full((2, 1), i, "float32")]


def test_a_clone_is_fed_by_the_loader_of_its_variables() -> None:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    loader = DataLoader.from_generator(feed_list=[x, y], capacity=2, iterable=False).set_batch_generator(
        batches
    )
    total = layers.reduce_sum(x) + layers.reduce_sum(y)
    main = default_main_program()
    copy, test = main.clone(), main.clone(for_test=True)
    exe, sums = Executor(), []
    loader.start()
    for program in (main, copy, test):
        sums.append(float(exe.run(program, fetch_list=[total])[0]))
    assert sums == [0.0, 10.0, 20.0]
    with pytest.raises(EOFException):
        exe.run(test, fetch_list=[total])
    loader.reset()


def test_a_loader_does_not_feed_a_copy_without_its_variables() -> None:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    DataLoader.from_generator(feed_list=[x, y], capacity=2, iterable=False).set_batch_generator(batches)
    doubled = x * 2
    assert len(default_main_program().clone(for_test=True).readers) == 1
    pruned = normalize_program(default_main_program(), [x], [doubled])
    assert pruned.readers == ()
    (value,) = Executor().run(pruned, feed={"x": np.ones((2, 4), "float32")}, fetch_list=[doubled.name])
    assert (value == 2).all()


def test_a_started_loader_and_feeds_complement_each_other() -> None:
    with program_guard(Program(), Program()):
        x, y, factor = fluid.data("x", [None, 4]), fluid.data("y", [None, 1]), fluid.data("factor", [1])
        loader = DataLoader.from_generator(feed_list=[x, y], capacity=2, iterable=False)
        loader.set_batch_generator(batches)
        scaled = layers.reduce_sum(x) * factor
        exe, two, program = Executor(), np.array([2.0], "float32"), default_main_program()
        ones = {"x": np.ones((1, 4), "float32"), "factor": two}
        assert exe.run(program, feed=ones, fetch_list=[scaled])[0] == 8.0  # the loader is not started
        with pytest.raises(ConfigError, match="not started"):
            exe.run(program, fetch_list=[scaled])
        loader.start()
        assert [float(exe.run(program, feed={"factor": two}, fetch_list=[scaled])[0]) for _ in "ab"] == [
            0.0,
            16.0,
        ]
        with pytest.raises(
            FeedError, match=r"feed 'x' was given, but a started data loader feeds it: x, y; .*reset\(\)"
        ):
            exe.run(program, feed=ones, fetch_list=[scaled])
        loader.reset()
        assert exe.run(program, feed=ones, fetch_list=[scaled])[0] == 8.0
