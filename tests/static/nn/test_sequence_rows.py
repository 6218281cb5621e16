"""Layers that repeat, reorder, join or cut sequences agree with loops over them, and reject what does not fit."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, FeedError, ProgramError
from argosy.engine.runtime.executor import Executor
from argosy.static import nn
from argosy.static.nn.sequence_rows import lod_reset
from tests.ragged import Sequences, check, ids_of

PAIRS = ([[2, 0, 3], [1, 2, 0]], [[4], [2]], [[0, 0], [0, 0]], [[1, 1], [0, 3]])


def run(feed: dict[str, Any], *fetches: Any) -> list[Any]:
    return Executor().run(feed=feed, fetch_list=list(fetches), return_numpy=False)


def test_a_row_of_each_sequence_is_repeated_for_all_of_its_rows() -> None:
    def repeated(s: Sequences) -> Sequences:
        return [each.sum(0, keepdim=True).expand(len(each), 3) for each in s]

    out = check(lambda x: nn.sequence_expand_as(nn.sequence_pool(x, "sum"), x), repeated)
    assert out.lod_level == 1
    with pytest.raises(ConfigError, match="has no sequences"):
        nn.sequence_expand_as(out, static.data("dense", [None, 1]))


def test_expanding_a_ragged_variable_repeats_its_sequences() -> None:
    def repeated(s: Sequences, t: Sequences) -> Sequences:
        return [each for each, other in zip(s, t, strict=True) for _ in range(len(other))]

    check(nn.sequence_expand, repeated, PAIRS[:2], shapes=[(3,), (1,)])


def test_sequence_expand_gives_the_documented_results() -> None:
    x = static.data("x", [None, 1], "int64", lod_level=1)
    dense = static.data("dense", [None, 1], "int64")
    y = static.data("y", [None, 1], "int64", lod_level=2)
    nested = LoDTensor.of_lengths(np.zeros((8, 1), np.int64), [[2, 2], [3, 3, 1, 1]])
    feed = {"x": ids_of([1, 2], [3, 4]), "y": nested, "dense": np.array([[1], [2]])}
    out, outer = run(feed, nn.sequence_expand(x, y, ref_level=0), nn.sequence_expand(dense, y, ref_level=0))
    assert out.rows.flatten().tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
    assert out.recursive_sequence_lengths() == [[2, 2, 2, 2]]
    assert (outer.rows.flatten().tolist(), outer.recursive_sequence_lengths()) == ([1, 1, 2, 2], [[2, 2]])
    with pytest.raises(ConfigError, match="2 levels of sequences, and no level 2"):
        nn.sequence_expand(x, y, ref_level=2)


def test_concatenation_joins_sequence_by_sequence() -> None:
    def joined(s: Sequences, t: Sequences) -> Sequences:
        return [torch.cat([a, b, a]) for a, b in zip(s, t, strict=True)]

    def layer(x: Any, y: Any) -> Any:
        return nn.sequence_concat([x, y, x])

    out = check(layer, joined, PAIRS, shapes=[(2,), (2,)])
    assert (out.lod_level, torch.relu(out).lod_level) == (1, 1)


def test_a_result_with_other_lengths_can_be_pooled() -> None:
    check(
        lambda x, y: nn.sequence_pool(torch.relu(nn.sequence_concat([x, y])), "sum"),
        lambda s, t: torch.stack([torch.cat(p).relu().sum(0) for p in zip(s, t, strict=True)]),
        PAIRS,
        shapes=[(2,), (2,)],
    )


def test_reversal_is_per_sequence() -> None:
    check(nn.sequence_reverse, lambda s: [each.flip(0) for each in s])


@pytest.mark.parametrize("new_dim", [2, 12])
def test_reshaping_changes_the_lengths(new_dim: int) -> None:
    batches = ([2, 0, 4], [6], [0, 0])
    check(
        lambda x: nn.sequence_reshape(x, new_dim),
        lambda s: [e.reshape(-1, new_dim) for e in s],
        batches,
        [(6,)],
    )


def test_a_sequence_that_is_not_divisible_is_an_error_of_the_run() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    out = nn.sequence_pool(nn.sequence_reshape(x, 4), "sum")
    with pytest.raises(ProgramError, match="repeat"):
        run({"x": LoDTensor.of_lengths(np.ones((4, 2), "float32"), [[1, 3]])}, out)


def test_slices_are_taken_of_each_sequence() -> None:
    x = static.data("x", [None, 2], lod_level=1)
    offset, length = static.data("offset", [None, 1], "int64"), static.data("length", [None, 1], "int64")
    out = nn.sequence_slice(x, offset, length)
    rows = np.arange(12, dtype="float32").reshape(6, 2)
    feed = {"x": LoDTensor.of_lengths(rows, [[3, 1, 2]]), "offset": np.array([[0], [1], [1]])}
    (cut,) = run({**feed, "length": np.array([[2], [0], [1]])}, out)
    np.testing.assert_array_equal(cut, rows[[0, 1, 5]])
    assert cut.recursive_sequence_lengths() == [[2, 0, 1]]
    with pytest.raises(ProgramError, match="repeat"):  # beyond the end of the second sequence
        run({**feed, "length": np.array([[2], [1], [1]])}, out)


def test_updates_are_scattered_into_the_rows_of_their_sequences() -> None:
    x, index = static.data("x", [None, 4]), static.data("index", [None, 1], "int64", lod_level=1)
    out = nn.sequence_scatter(x, index, static.data("updates", [None, 1], lod_level=1))
    updates = LoDTensor.of_lengths(np.ones((4, 1), "float32"), [[1, 3]])
    (got,) = run({"x": np.zeros((2, 4), "float32"), "index": ids_of([1], [0, 3, 3]), "updates": updates}, out)
    assert got.tolist() == [[0, 1, 0, 0], [1, 0, 0, 2]]
    with pytest.raises(FeedError, match=r"'index' the lengths \[2, 2\], 'updates' the lengths \[1, 3\]"):
        run({"x": np.zeros((2, 4), "float32"), "index": ids_of([1, 0], [3, 3]), "updates": updates}, out)


def test_lod_reset_gives_rows_other_sequences() -> None:
    x, y = static.data("x", [None, 1], lod_level=1), static.data("y", [None, 1], lod_level=1)
    offsets = static.data("offsets", [None], "int64")
    by_y, by_offsets = (
        nn.sequence_pool(lod_reset(x, y), "sum"),
        nn.sequence_pool(lod_reset(x, offsets), "sum"),
    )

    def feed(lengths: list[int], ends: list[int]) -> dict[str, Any]:
        rows = np.arange(4, dtype="float32").reshape(4, 1)
        other = LoDTensor.of_lengths(np.zeros((sum(lengths), 1), "float32"), [lengths])
        return {"x": LoDTensor.of_lengths(rows, [[2, 2]]), "y": other, "offsets": np.array(ends)}

    first, second = run(feed([1, 3], [0, 3, 4]), by_y, by_offsets)
    assert (first.tolist(), second.tolist()) == ([[0], [6]], [[3], [3]])
    for lengths, ends in (([1, 2], [0, 4]), ([2, 3], [0, 4]), ([1, 3], [0, 3]), ([1, 3], [0, 5])):
        with pytest.raises(ProgramError):
            run(feed(lengths, ends), by_y, by_offsets)
    with pytest.raises(ConfigError, match="target_lod=.0, 4. fixes the number of rows"):
        lod_reset(x, target_lod=[0, 4])


def test_one_value_with_the_rows_of_two_ragged_variables_is_ambiguous() -> None:
    x, y = (static.data(name, [None, 1], lod_level=1) for name in "xy")
    joined: Tensor = nn.sequence_concat([x, x])
    both = joined + y
    with pytest.raises(ProgramError, match="rows of several ragged variables, .* lod_reset"):
        nn.sequence_pool(both, "sum")
