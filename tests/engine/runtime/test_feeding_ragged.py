"""Feeding LoDTensors: companions, lists of feeds, what does not fit; and how ragged values are fetched."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

from argosy import static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import FeedError, LoDFetchError
from argosy.engine.runtime.executor import Executor
from argosy.static import nn
from tests.ragged import ids_of


def rows(*lengths: int) -> LoDTensor:
    return LoDTensor.of_lengths(np.ones((sum(lengths), 2), "float32"), [list(lengths)])


def test_a_list_of_feeds_is_one_batch_of_all_their_sequences() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    total = nn.sequence_pool(x, "sum")
    (sums,) = Executor().run(feed=[{"x": rows(1, 2)}, {"x": rows(0, 4)}], fetch_list=[total])
    assert sums[:, 0].tolist() == [1, 2, 0, 4]
    with pytest.raises(FeedError, match="its 2 parts cannot be concatenated"):
        Executor().run(feed=[{"x": rows(1)}, {"x": np.ones((1, 2), "float32")}], fetch_list=[total])


def test_feeds_that_do_not_fit_are_rejected() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    total = nn.sequence_pool(x, "sum")
    exe = Executor()
    nested = LoDTensor.of_lengths(np.ones((2, 2), "float32"), [[1], [2]])
    invalid = rows(2)
    invalid.set(np.ones((3, 2), "float32"))
    for fed, message in (
        (np.ones((2, 2), "float32"), "feed 'x' is an array, and the program needs the lengths"),
        (LoDTensor(np.ones((2, 2), "float32")), "of lod_level 1, and the fed LoDTensor has 0 levels"),
        (nested, "has 2 levels; give the lengths"),
        (invalid, "has the sequences of level 0 have 2 rows, and there are 3"),
    ):
        with pytest.raises(FeedError, match=message):
            exe.run(feed={"x": fed}, fetch_list=[total])
    (plain,) = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[(x * 2).sum()])
    assert plain == 8  # no layer needs the lengths


def test_the_rows_of_two_feeds_that_are_added_must_have_the_same_lengths() -> None:
    x, y = (static.data(name, [None, 2], lod_level=1) for name in "xy")
    total = nn.sequence_pool(x + y, "sum")
    exe = Executor()
    (sums,) = exe.run(feed={"x": rows(1, 2), "y": rows(1, 2)}, fetch_list=[total])
    assert sums[:, 0].tolist() == [2, 4]
    with pytest.raises(
        FeedError, match=r"'x' the lengths \[1, 2\], 'y' the lengths \[2, 1\]; feed sequences of the"
    ):
        exe.run(feed={"x": rows(1, 2), "y": rows(2, 1)}, fetch_list=[total])
    with pytest.raises(FeedError, match="3 in dimension 0, .* 4 in dimension 0|combines"):
        exe.run(feed={"x": rows(1, 2), "y": rows(2, 2)}, fetch_list=[total])


def test_a_ragged_value_is_fetched_as_a_lod_tensor_only() -> None:
    x = static.data("x", [None, 1], "int64", lod_level=2)
    doubled, pooled = x * 2, nn.sequence_first_step(x)
    exe = Executor()
    nested = LoDTensor.of_lengths(np.arange(4).reshape(4, 1), [[2, 0, 1], [1, 0, 3]])
    nested_rows, first_rows = exe.run(feed={"x": nested}, fetch_list=[doubled, pooled], return_numpy=False)
    assert (nested_rows.lod(), first_rows.lod()) == ([[0, 2, 2, 3], [0, 1, 1, 4]], [[0, 2, 2, 3]])
    np.testing.assert_array_equal(first_rows, [[0], [0], [1]])
    with pytest.raises(
        LoDFetchError, match=r"hold LoD information: .*; they cannot be cast .* return_numpy=False"
    ):
        exe.run(feed={"x": nested}, fetch_list=[doubled])


def test_a_lod_tensor_may_feed_a_dense_variable() -> None:
    x = static.data("x", [None, 1], "int64")
    (value,) = Executor().run(feed={"x": ids_of([1], [2, 3])}, fetch_list=[x * 2])
    assert value.tolist() == [[2], [4], [6]]


def test_many_sets_of_sizes_need_no_memory() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    total: Any = nn.sequence_pool(x, "sum")
    exe = Executor()
    for length in range(2, 12):
        exe.run(feed={"x": rows(length, 3, 2)}, fetch_list=[total])
    (steps,) = exe._compiled[total.program].values()
    assert not steps.checked_sizes
