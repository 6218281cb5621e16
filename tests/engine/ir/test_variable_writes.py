"""x[i] = v, and other writes to a variable: code that follows reads the new value, and gradients flow."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch

from argosy import static
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers


def run(*fetches: Any, **feed: Any) -> list[Any]:
    return static.Executor().run(feed=feed, fetch_list=list(fetches))


def test_elements_are_assigned_by_number_slice_and_variable_and_gradients_flow() -> None:
    x = static.data("x", [None, 3])
    w = static.create_parameter([3], "float32", name="w")
    y = x * w
    before = y * 1
    y[0] = w * 3
    y[:, 1] = 7.0
    y[1:, 2] = x[1:, 0]
    y[x.argmax(0)] = y[0] * 2
    ((_, gradient),) = static.append_backward((y * y + before).sum())
    static.Executor().run(static.default_startup_program())
    fed = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    value, old, grad = run(y, before, gradient, x=fed)
    weight, inputs = global_scope().get("w").clone().requires_grad_(), torch.from_numpy(fed)
    product = inputs * weight
    expected = product.clone()
    expected[0] = weight * 3
    expected[:, 1] = 7.0
    expected[1:, 2] = inputs[1:, 0]
    expected = expected.clone()
    expected[inputs.argmax(0)] = expected[0].clone() * 2
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(old, product.detach(), rtol=1e-5)
    total = (expected * expected + product).sum()
    np.testing.assert_allclose(grad, torch.autograd.grad(total, weight)[0], rtol=1e-4, atol=1e-5)


def test_a_feed_keeps_its_value_and_its_name() -> None:
    x = static.data("x", [None, 2])
    doubled = x * 2
    x[0] = 5.0
    fed = np.ones((2, 2), "float32")
    after, before, twice = run(x, "x", doubled, x=fed)
    assert (after.tolist(), before.tolist(), twice.tolist()) == (
        [[5, 5], [1, 1]],
        fed.tolist(),
        (fed * 2).tolist(),
    )
    assert list(static.default_main_program().feeds()) == ["x"]


def test_a_variable_of_the_scope_is_written_in_the_scope() -> None:
    state = layers.create_global_var([3], 1.0, "float32", persistable=True, name="state")
    state[1] = state[1] + 1
    static.Executor().run(static.default_startup_program())
    assert [run(state)[0].tolist() for _ in range(2)] == [[1, 2, 1], [1, 3, 1]]
    assert global_scope().get("state").tolist() == [1, 3, 1]


def test_a_loop_assigns_elements_of_a_variable_outside() -> None:
    x, i = static.data("x", [4, 2]), layers.fill_constant([1], "int64", 0)
    rows = layers.fill_constant([4, 2], "float32", 0.0)
    n = layers.fill_constant([1], "int64", 3)
    cond = layers.less_than(i, n)
    loop = layers.While(cond)
    with loop.block():
        rows[i] = x[i] * 2
        layers.increment(i)
        layers.less_than(i, n, cond=cond)
    fed = np.arange(8, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(run(rows, x=fed)[0], np.concatenate([fed[:3] * 2, np.zeros((1, 2))]))
