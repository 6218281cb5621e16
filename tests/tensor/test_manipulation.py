"""Shapes, parts and rows: against torch and NumPy, with two batch sizes, gradients included."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.runtime.executor import Executor

Agree = Callable[..., None]


def value(variable: Any) -> Any:
    return Executor().run(default_main_program(), {}, [variable])[0]


def batch() -> Any:
    """A feed whose first size is not known."""
    return default_main_program().data("x", [None, 4], "float32")


# --- shapes -------------------------------------------------------------------------------------------------


def test_shape_is_known_when_it_runs(agree: Agree) -> None:
    agree(tensor.shape, lambda x: torch.tensor(x.shape, dtype=torch.int32), (None, 3, 4))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([-1, 6], lambda x: x.reshape(-1, 6)),
        ([0, 12], lambda x: x.reshape(x.shape[0], 12)),
        ((0, 0, 2, 2), lambda x: x.reshape(x.shape[0], 3, 2, 2)),
        ([0, -1, 2], lambda x: x.reshape(x.shape[0], 6, 2)),
        ([-1], lambda x: x.flatten()),
        (np.array([0, 12]).tolist(), lambda x: x.reshape(x.shape[0], 12)),
    ],
)
def test_reshape_copies_zeros_and_infers_minus_one(agree: Agree, shape: Any, expected: Any) -> None:
    agree(lambda x: tensor.reshape(x, shape), expected, (None, 3, 4))


def test_reshape_takes_symbols(agree: Agree) -> None:
    agree(
        lambda x: tensor.reshape(x, [x.size(0) * 3, 4]), lambda x: x.reshape(x.shape[0] * 3, 4), (None, 3, 4)
    )
    agree(lambda x: tensor.reshape(x, [x.size(0), 6, 2]), lambda x: x.reshape(x.shape[0], 6, 2), (None, 3, 4))


def test_reshape_says_what_is_wrong_with_a_shape() -> None:
    x = tensor.ones([2, 3])
    with pytest.raises(ConfigError, match="more than once"):
        tensor.reshape(x, [-1, -1])
    with pytest.raises(ConfigError, match=r"x\.size\(0\)"):
        tensor.reshape(x, [default_main_program().data("size", [1], "int64"), 1])
    assert tensor.reshape(x, [tensor.to_tensor([6]), 1]).shape == (6, 1)


@pytest.mark.parametrize("axes", [(0, -1), (1, 2), (1, -1), (0, 1), (2, 2)])
def test_flatten_joins_dimensions(agree: Agree, axes: tuple[int, int]) -> None:
    agree(lambda x: tensor.flatten(x, *axes), lambda x: x.flatten(*axes), (None, 3, 4, 2))


@pytest.mark.parametrize("axis", [None, 1, -1, [1, 3], [1, 2]])
def test_squeeze_drops_sizes_of_one(agree: Agree, axis: Any) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze((1, 3) if axis is None else axis if isinstance(axis, int) else tuple(axis))

    agree(lambda x: tensor.squeeze(x, axis), expect, (None, 1, 3, 1))


def test_squeeze_keeps_a_batch_of_one() -> None:
    x = default_main_program().data("x", [None, 1, 4], "float32")
    out = tensor.squeeze(x)
    (fetched,) = Executor().run(default_main_program(), {"x": np.ones((1, 1, 4), "float32")}, [out])
    assert fetched.shape == (1, 4)
    with pytest.raises(ConfigError, match="need not be 1"):
        tensor.squeeze(x, 0)


@pytest.mark.parametrize("axis", [0, -1, [0, 2], (1, 1)])
def test_unsqueeze_adds_sizes_of_one(agree: Agree, axis: Any) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        for place in [axis] if isinstance(axis, int) else axis:
            x = x.unsqueeze(place)
        return x

    agree(lambda x: tensor.unsqueeze(x, axis), expect, (None, 3))


@pytest.mark.parametrize("name", ["expand", "broadcast_to"])
def test_expand_repeats_sizes_of_one(agree: Agree, name: str) -> None:
    agree(lambda x: getattr(tensor, name)(x, [2, -1, 3]), lambda x: x.expand(2, -1, 3), (None, 1))
    agree(
        lambda x, y: getattr(tensor, name)(x, [y.size(0), 3]),
        lambda x, y: x.expand(len(y), 3),
        (3,),
        (None, 2),
    )


def test_expand_as_takes_the_shape_of_another(agree: Agree) -> None:
    agree(tensor.expand_as, lambda x, y: x.expand(y.shape), (1, 3), (None, 3))


@pytest.mark.parametrize("times", [2, [2], [1, 3], (2, 1, 2)])
def test_tile_repeats(agree: Agree, times: Any) -> None:
    agree(lambda x: tensor.tile(x, times), lambda x: x.tile(times), (None, 3))


@pytest.mark.parametrize("axis", [0, [0, 1], -1])
def test_flip_and_reverse_go_backwards(agree: Agree, axis: Any) -> None:
    dims = [axis] if isinstance(axis, int) else axis
    agree(lambda x: tensor.flip(x, axis), lambda x: x.flip(dims), (None, 3))
    assert tensor.reverse is tensor.flip


@pytest.mark.parametrize(("shifts", "axis"), [(1, None), (2, 0), ([1, -1], [0, 1]), (-1, -1)])
def test_roll_moves_around(agree: Agree, shifts: Any, axis: Any) -> None:
    agree(lambda x: tensor.roll(x, shifts, axis), lambda x: x.roll(shifts, axis), (None, 3))


# --- putting together and taking apart ----------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_joins_along_an_axis(agree: Agree, axis: int) -> None:
    agree(lambda *x: tensor.concat(x, axis), lambda *x: torch.cat(x, axis), (None, 3), (None, 3), (None, 3))


def test_concat_joins_different_sizes(agree: Agree) -> None:
    agree(lambda x, y: tensor.concat([x, y]), lambda x, y: torch.cat([x, y]), (None, 3), (4, 3))
    with pytest.raises(ConfigError, match="axis"):
        tensor.concat([tensor.ones([1])], default_main_program().data("axis", [1], "int64"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_stack_joins_along_a_new_axis(agree: Agree, axis: int) -> None:
    agree(lambda *x: tensor.stack(x, axis), lambda *x: torch.stack(x, axis), (None, 3), (None, 3))


@pytest.mark.parametrize("parts", [2, [1, 3], [1, -1, 2], (-1,)])
def test_split_cuts_into_parts(agree: Agree, parts: Any) -> None:
    sections = [2, 2] if parts == 2 else [4 - sum(p for p in parts if p > 0) if p == -1 else p for p in parts]
    agree(lambda x: tensor.split(x, parts, 1), lambda x: x.split(sections, 1), (None, 4))


def test_split_takes_the_rest_of_the_batch(agree: Agree) -> None:
    agree(lambda x: tensor.split(x, [2, -1]), lambda x: x.split([2, len(x) - 2]), (None, 4), batches=(5, 2))


def test_split_says_what_does_not_divide() -> None:
    with pytest.raises(ConfigError, match="does not divide into 3"):
        tensor.split(tensor.ones([4]), 3)
    with pytest.raises(ConfigError, match="known only when data is fed"):
        tensor.split(batch(), 2)
    with pytest.raises(ConfigError, match="more than once"):
        tensor.split(tensor.ones([4]), [-1, -1])


def test_chunk_cuts_into_equal_parts(agree: Agree) -> None:
    agree(lambda x: tensor.chunk(x, 3, 1), lambda x: x.chunk(3, 1), (None, 6))


@pytest.mark.parametrize("name", ["unbind", "unstack"])
@pytest.mark.parametrize("axis", [1, -1])
def test_unbind_and_unstack_take_slices(agree: Agree, name: str, axis: int) -> None:
    agree(lambda x: getattr(tensor, name)(x, axis), lambda x: x.unbind(axis), (None, 3, 2))


def test_unbind_and_unstack_need_a_known_number() -> None:
    with pytest.raises(ConfigError, match="known only when data is fed"):
        tensor.unbind(batch())
    with pytest.raises(ConfigError, match="size 4, not num=3"):
        tensor.unstack(batch(), 1, 3)


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "starts", "ends", "part"),
    [
        ([1], [1], [3], np.s_[:, 1:3]),
        ([1, 2], [0, -2], [2, 100], np.s_[:, :2, -2:]),
        ([0], [1], [-1], np.s_[1:-1]),
        ([-1], [-3], [-1], np.s_[..., -3:-1]),
    ],
)
def test_slice_takes_the_given_range(agree: Agree, axes: Any, starts: Any, ends: Any, part: Any) -> None:
    agree(lambda x: tensor.slice(x, axes, starts, ends), lambda x: x[part], (None, 3, 4))


@settings(max_examples=40, deadline=None)
@given(st.integers(-6, 6), st.integers(-6, 6), st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_strided_slice_is_python_s(start: int, end: int, stride: int) -> None:
    array = np.arange(10).reshape(2, 5)
    with program_guard(Program(), Program()):
        actual = value(tensor.strided_slice(tensor.to_tensor(array), [1], [start], [end], [stride]))
    np.testing.assert_array_equal(actual, array[:, start:end:stride])


def test_strided_slice_cuts_several_axes_backwards(agree: Agree) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return x.flip(1)[:, :2].flip(2)[:, :, ::2]

    agree(lambda x: tensor.strided_slice(x, [1, 2], [2, 3], [0, -9], [-1, -2]), expect, (None, 3, 4))


def test_slices_want_one_number_for_each_axis() -> None:
    with pytest.raises(ConfigError, match="one number for each axis"):
        tensor.slice(tensor.ones([2, 2]), [0, 1], [0], [1])
    with pytest.raises(ConfigError, match="sliced backwards"):
        tensor.strided_slice(batch(), [0], [3], [0], [-1])
    with pytest.raises(ConfigError, match="ends"):
        tensor.slice(tensor.ones([2]), [0], [0], [default_main_program().data("end", [1], "int64")])


@pytest.mark.parametrize(
    ("shape", "offsets", "part"),
    [
        ([-1, 2, 2], [0, 1, 2], np.s_[:, 1:3, 2:4]),
        ([-1, -1, 1], None, np.s_[:, :, :1]),
        (None, [0, 1, 0], np.s_[:, 1:]),
    ],
)
def test_crop_takes_a_box(agree: Agree, shape: Any, offsets: Any, part: Any) -> None:
    agree(lambda x: tensor.crop(x, shape, offsets), lambda x: x[part], (None, 3, 4))


def test_crop_wants_one_number_for_each_axis() -> None:
    with pytest.raises(ConfigError, match="2 dimensions"):
        tensor.crop(tensor.ones([2, 2]), [1])


# --- rows by index ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [(None,), (None, 1)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_gather_takes_slices(agree: Agree, index: Any, axis: int | None) -> None:
    def expect(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.index_select(axis or 0, index.flatten())

    agree(lambda x, i: tensor.gather(x, i, axis), expect, (3, 4), (index, 3))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gather_nd_takes_elements_and_slices(agree: Agree, depth: int) -> None:
    def expect(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[tuple(index[..., i] for i in range(depth))]

    agree(tensor.gather_nd, expect, (3, 3, 4), ((None, 2, depth), 3))


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_scatter_replaces_rows(shape: tuple[int, ...]) -> None:
    x, index = np.arange(8, dtype="float32").reshape(4, 2), np.array([2, 0]).reshape(shape)
    updates = np.array([[10, 11], [20, 21]], "float32")
    actual = value(tensor.scatter(tensor.to_tensor(x), tensor.to_tensor(index), tensor.to_tensor(updates)))
    np.testing.assert_array_equal(actual, [[20, 21], [2, 3], [10, 11], [6, 7]])


def test_scatter_without_overwrite_adds_up_the_updates() -> None:
    x, index = tensor.ones([3, 2]), tensor.to_tensor([1, 1])
    updates = tensor.to_tensor([[1.0, 2.0], [10.0, 20.0]])
    np.testing.assert_array_equal(value(tensor.scatter(x, index, updates, False)), [[1, 1], [11, 22], [1, 1]])


def test_scatter_has_gradients_for_both(agree: Agree) -> None:
    def expect(x: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return torch.cat([updates, x[2:]])

    for overwrite in (True, False):
        agree(
            lambda x, u, o=overwrite: tensor.scatter(x, tensor.arange(2), u, o),
            expect,
            (None, 3),
            (2, 3),
            batches=(5, 2),
        )


def test_scatter_nd_adds_at_places(agree: Agree) -> None:
    def expect(x: torch.Tensor, index: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return x.index_put((index[:, 0], index[:, 1]), updates, accumulate=True)

    feeds = (((None, 2), 3), (None, 2))
    agree(tensor.scatter_nd_add, expect, (3, 3, 2), *feeds)
    agree(
        lambda i, u: tensor.scatter_nd(i, u, [3, 3, 2]),
        lambda i, u: expect(torch.zeros(3, 3, 2), i, u),
        *feeds,
    )


def test_rank_diagonal_and_broadcast_tensors(agree: Agree) -> None:
    agree(
        lambda x: [tensor.rank(x), tensor.diagonal(x, 1, 1, 2), *tensor.broadcast_tensors([x, x[:1]])],
        lambda x: [
            torch.tensor([3], dtype=torch.int32),
            torch.diagonal(x, 1, 1, 2),
            *torch.broadcast_tensors(x, x[:1]),
        ],
        (2, 3, 3),
    )
