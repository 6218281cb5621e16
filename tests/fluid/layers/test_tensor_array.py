"""Arrays: lists of Variables with known indices, lists of the step in loops."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers


def test_gradients_flow_through_an_array_with_known_indices() -> None:
    x, w = layers.data("x", [3]), layers.create_parameter([3, 3], "float32", name="w")
    i = layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.matmul(x, w), i)
    layers.increment(i)
    layers.array_write(layers.tanh(layers.array_read(array, layers.zeros([1], "int64"))), i, array=array)
    joined, sizes = layers.tensor_array_to_tensor(array, axis=1)
    ((_, gradient),) = append_backward(layers.mean(joined))
    exe = Executor()
    exe.run(default_startup_program())
    fed = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    fetches = [joined, gradient, layers.array_length(array), sizes]
    value, grad, length, widths = exe.run(feed={"x": fed}, fetch_list=fetches)
    weight = global_scope().get("w").clone().requires_grad_()
    y = torch.from_numpy(fed) @ weight
    expected = torch.cat([y, torch.tanh(y)], 1)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, torch.autograd.grad(expected.mean(), weight)[0], rtol=1e-5)
    assert (length.tolist(), widths.tolist()) == ([2], [3, 3])
    with pytest.raises(ConfigError, match="append at its end"):
        layers.array_write(x, layers.fill_constant([1], "int64", 7), array=array)


def test_a_loop_reads_what_it_has_written() -> None:
    x, n = layers.data("x", [2]), layers.data("n", [1], append_batch_size=False, dtype="int64")
    i = layers.fill_constant([1], "int64", 0)
    array, logged = layers.array_write(x, i), layers.create_array("float32")
    cond = layers.less_than(i, n)
    loop = layers.While(cond)
    with loop.block():
        value = layers.array_read(array, i)
        layers.array_write(layers.reduce_sum(value), i, array=logged)
        layers.increment(i)
        layers.array_write(value * 2, i, array=array)
        layers.less_than(i, n, cond=cond)
    last, length, total = layers.array_read(array, i), layers.array_length(array), layers.array_length(logged)
    exe = Executor()
    fed = np.ones((3, 2), "float32")
    for count in (0, 4):
        feed = {"x": fed, "n": np.array([count])}
        value, *lengths = exe.run(feed=feed, fetch_list=[last, length, total])
        np.testing.assert_array_equal(value, fed * 2**count)
        assert [int(number) for number in lengths] == [count + 1, count]
    first = layers.array_read(logged, layers.fill_constant([1], "int64", 0))
    with pytest.raises(ProgramError, match="index 0 of an array of 0 tensors"):
        exe.run(feed={"x": fed, "n": np.array([0])}, fetch_list=[first])


def test_a_gradient_that_would_be_lost_raises() -> None:
    x = layers.data("x", [2])
    i, n = (layers.fill_constant([1], "int64", number) for number in (0, 2))
    array = layers.array_write(layers.fc(x, 2), i)
    cond = layers.less_than(i, n)
    loop = layers.While(cond)
    with loop.block():
        value = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(value, i, array=array)
        layers.less_than(i, n, cond=cond)
    loss = layers.mean(layers.array_read(array, i) * layers.fc(x, 2))
    with pytest.raises(
        ProgramError, match="through which gradients cannot flow; carry the value in while_loop"
    ):
        append_backward(loss)
    with pytest.raises(ConfigError, match="known while the program is built"):
        layers.tensor_array_to_tensor(array)
