"""Where things are."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor

Agree = Callable[..., None]


def test_where_chooses(agree: Agree) -> None:
    agree(tensor.where, torch.where, ((None, 3), bool), (None, 3), (3,))
    agree(
        lambda c, x: tensor.where(c, x, 0.0),
        lambda c, x: torch.where(c, x, 0.0),
        ((None, 3), bool),
        (None, 3),
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_arguments_of_extremes_are_torch_s(agree: Agree, name: str, axis: int | None) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        actual: torch.Tensor = getattr(torch, name)(x, axis)
        return actual.reshape(1) if axis is None else actual

    agree(lambda x: getattr(tensor, name)(x, axis), expect, (None, 3))


def test_arguments_of_extremes_keep_dimensions_and_take_a_dtype(agree: Agree) -> None:
    agree(lambda x: tensor.argmax(x, 1, True, "int32"), lambda x: x.argmax(1, True).int(), (None, 3))
    with pytest.raises(ConfigError, match="int32"):
        tensor.argmin(tensor.ones([2]), dtype="float32")


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_torch_s(agree: Agree, axis: int, descending: bool) -> None:
    agree(lambda x: tensor.sort(x, axis, descending), lambda x: x.sort(axis, descending).values, (None, 4))
    agree(lambda x: tensor.argsort(x, axis, descending), lambda x: x.argsort(axis, descending), (None, 4))


def test_argsort_keeps_the_order_of_equal_elements() -> None:
    order = tensor.argsort(tensor.to_tensor([1, 0] * 20))
    (fetched,) = Executor().run(default_main_program(), {}, [order])
    assert fetched.tolist() == [*range(1, 40, 2), *range(0, 40, 2)]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_topk_gives_values_and_indices(agree: Agree, largest: bool, axis: int | None) -> None:
    def expect(x: torch.Tensor) -> Any:
        return tuple(x.topk(2, -1 if axis is None else axis, largest))

    agree(lambda x: tensor.topk(x, 2, axis, largest), expect, (None, 4))


def test_topk_needs_a_known_k() -> None:
    with pytest.raises(ConfigError, match="k holds Variable"):
        tensor.topk(tensor.ones([3]), default_main_program().data("k", [1], "int64"))
    assert tensor.topk(tensor.ones([3]), tensor.to_tensor([2]))[0].shape == (2,)


def test_nonzero_finds_as_many_as_there_are(agree: Agree) -> None:
    agree(tensor.nonzero, torch.nonzero, ((None, 3), 2))
    agree(lambda x: tensor.nonzero(x, as_tuple=True), lambda x: x.nonzero().split(1, 1), ((None, 3), 2))


def test_nonzero_gives_sizes_that_can_be_used(agree: Agree) -> None:
    def build(x: Any) -> Any:
        places = tensor.nonzero(x)
        return tensor.ones([places.size(0), 2]) * 3

    agree(build, lambda x: torch.full((int((x != 0).sum()), 2), 3.0), ((None, 3), 2))


def test_masked_select_takes_as_many_as_the_mask_says(agree: Agree) -> None:
    agree(tensor.masked_select, torch.masked_select, (None, 3), ((None, 3), bool))
    agree(tensor.masked_select, torch.masked_select, (None, 3), ((3,), bool))


def test_index_select_and_index_sample_are_torch_s(agree: Agree) -> None:
    agree(tensor.index_select, lambda x, i: x.index_select(0, i), (3, 4), ((None,), 3))
    agree(lambda x, i: tensor.index_select(x, i, 1), lambda x, i: x.index_select(1, i), (None, 4), ((2,), 4))
    agree(tensor.index_sample, lambda x, i: x.gather(1, i), (None, 4), ((None, 2), 4))


def test_indices_may_be_int32() -> None:
    x = tensor.to_tensor([[1.0, 2.0], [3.0, 4.0]])
    index = tensor.to_tensor([[1], [0]], "int32")
    outs = [tensor.index_sample(x, index), tensor.gather(x, index), tensor.gather_nd(x, index)]
    fetched = Executor().run(default_main_program(), {}, outs)
    np.testing.assert_array_equal(fetched[0], [[2], [3]])
    np.testing.assert_array_equal(fetched[1], [[3, 4], [1, 2]])
    np.testing.assert_array_equal(fetched[2], [[3, 4], [1, 2]])
