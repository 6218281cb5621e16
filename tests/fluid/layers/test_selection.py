"""Parts, order, distinct elements, counters of 1.x against torch and NumPy."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers
from argosy.tensor import to_tensor

Agree = Callable[..., None]


def test_parts_and_shapes_are_torch_s(agree: Agree) -> None:
    index = [[0, 1], [1, 2]]
    agree(
        lambda x, y: [
            layers.gather_nd(x, to_tensor(index)),
            layers.scatter_nd_add(x, to_tensor(index), to_tensor([1.0, 2.0])),
            layers.strided_slice(x, [1], [0], [3], [2]),
            layers.expand_as(y, x),
            layers.pad_constant_like(x, y, 7.0),
            layers.triu(x),
            layers.crop_tensor(x, [1, 2], [1, 0]),
            layers.crop(x, y),
            layers.reverse(x, 1),
            *layers.argsort(x, descending=True),
            layers.eye(2, 3, [2]),
        ],
        lambda x, y: [
            torch.stack([x[0, 1], x[1, 2]]),
            x + torch.tensor([[0, 1.0, 0], [0, 0, 2]]),
            x[:, ::2],
            y.repeat(2, 1),
            torch.cat([y, torch.full((1, 3), 7.0)]),
            x.triu(),
            x[1:, :2],
            x[:1],
            x.flip(1),
            *torch.sort(x, descending=True),
            torch.eye(2, 3).repeat(2, 1, 1),
        ],
        (2, 3),
        (1, 3),
    )


def test_properties_have_shape_1(agree: Agree) -> None:
    agree(
        lambda x, b: [
            layers.size(x),
            layers.rank(x),
            layers.has_inf(x / 0.0),
            layers.has_nan(x),
            layers.isfinite(x),
            layers.is_empty(x),
            layers.reduce_all(b),
            layers.reduce_any(b, 0),
            layers.reduce_all(b, [1], keep_dim=True),
        ],
        lambda x, b: [
            torch.tensor([x.numel()]),
            torch.tensor([2], dtype=torch.int32),
            torch.tensor([True]),
            torch.tensor([False]),
            torch.tensor([True]),
            torch.tensor([False]),
            b.all().reshape(1),
            b.any(0),
            b.all(1, keepdim=True),
        ],
        ((None, 3), "fixed"),
        ((None, 3), bool),
    )


def test_distinct_elements_come_in_the_order_of_their_first_occurrence() -> None:
    """The example of Paddle's documentation."""
    x = default_main_program().data("x", [None], "int64")
    outs = [*layers.unique(x), *layers.unique_with_counts(x)]
    got = Executor().run(feed={"x": np.array([2, 3, 3, 1, 5, 3])}, fetch_list=outs)
    wanted = [[2, 3, 1, 5], [0, 1, 1, 2, 3, 1]]
    for value, expected in zip(got, [*wanted, *wanted, [1, 3, 1, 1]], strict=True):
        np.testing.assert_array_equal(value, expected)
    assert got[1].dtype == np.int32


def test_random_numbers_have_the_batch_size_of_the_input_and_counters_count() -> None:
    x = layers.data("x", [4])
    outs = [
        layers.uniform_random_batch_size_like(x, [-1, 300], min=0.0),
        layers.gaussian_random_batch_size_like(x, [-1, 300], mean=5.0),
        layers.sampling_id(x),
        layers.autoincreased_step_counter(begin=3, step=2),
    ]
    assert layers.autoincreased_step_counter() is default_main_program().vars["@STEP_COUNTER@"]
    exe = Executor()
    exe.run(default_startup_program())
    one_hot = np.eye(4, dtype="float32")[[2, 0, 3]]
    uniform, normal, ids, counter = exe.run(feed={"x": one_hot}, fetch_list=outs)
    assert uniform.shape == normal.shape == (3, 300)
    assert 0 <= uniform.min() < 0.1
    assert 0.9 < uniform.max() < 1
    assert abs(normal.mean() - 5) < 0.2
    np.testing.assert_array_equal(ids, [2, 0, 3])
    assert counter == [3]
    assert exe.run(feed={"x": one_hot}, fetch_list=outs)[3] == [5]
    with pytest.raises(ConfigError, match="leave them out"):
        layers.sampling_id(x, seed=3)
