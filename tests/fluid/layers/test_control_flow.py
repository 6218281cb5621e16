"""Switch and While: blocks of 1.x, which write to variables outside."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers, optimizer


def test_a_switch_computes_the_rate_of_each_step() -> None:
    x = layers.data("x", [3])
    loss = layers.mean(layers.fc(x, 1))
    step = layers.learning_rate_scheduler._decay_step_counter()
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with layers.Switch() as switch:
        with switch.case(step < layers.fill_constant([1], "float32", 2.0)):
            layers.assign(step * 0.25, output=rate)
        with switch.case(step < layers.fill_constant([1], "float32", 3.0)):
            layers.assign(np.array([0.5], "float32"), output=rate)
        with switch.default():
            layers.fill_constant([1], "float32", 0.125, out=rate)
    test = default_main_program().clone(for_test=True)
    optimizer.SGD(learning_rate=rate).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    batch = {"x": np.ones((2, 3), "float32")}
    before = global_scope().get("fc_0.w_0").clone()
    rates = [exe.run(feed=batch, fetch_list=[rate])[0].item() for _ in range(5)]
    assert rates == [0, 0.25, 0.5, 0.125, 0.125]
    moved = (before - global_scope().get("fc_0.w_0")).flatten()
    np.testing.assert_allclose(moved, [sum(rates)] * 3, rtol=1e-5)
    exe.run(test, feed=batch, fetch_list=[loss])
    assert global_scope().get("@LR_DECAY_COUNTER@").item() == 4, "a program for testing counts no steps"


def test_a_while_carries_what_its_block_writes_and_is_differentiated() -> None:
    x, n = layers.data("x", [3]), layers.data("n", [1], append_batch_size=False, dtype="int64")
    w = layers.create_parameter([3, 3], "float32", name="w")
    hidden, i = layers.scale(x, 1.0), layers.fill_constant([1], "int64", 0)
    total = layers.fill_constant([1], "float32", 0.0)
    cond = layers.less_than(i, n)
    loop = layers.While(cond)
    with loop.block():
        layers.assign(layers.tanh(layers.matmul(hidden, w)), output=hidden)
        layers.assign(total + layers.reduce_sum(hidden), output=total)
        assert layers.increment(i) is i
        assert layers.less_than(i, n, cond=cond) is cond
    loss = layers.mean(hidden) + total
    ((_, gradient),) = append_backward(loss)
    exe = Executor()
    exe.run(default_startup_program())
    for count in (0, 3):
        fed = np.random.default_rng(count).standard_normal((2, 3)).astype("float32")
        feed = {"x": fed, "n": np.array([count])}
        value, grad, last, is_true = exe.run(feed=feed, fetch_list=[loss, gradient, i, cond])
        weight, h, t = global_scope().get("w").clone().requires_grad_(), torch.from_numpy(fed), torch.zeros(1)
        for _ in range(count):
            h = torch.tanh(h @ weight)
            t = t + h.sum()
        expected = h.mean() + t
        np.testing.assert_allclose(value, expected.detach(), rtol=1e-5)
        wanted = torch.autograd.grad(expected, weight)[0] if count else torch.zeros(3, 3)
        np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)
        assert (last.item(), is_true.item()) == (count, False)


def test_what_would_not_end_or_has_no_place_raises() -> None:
    i = layers.fill_constant([1], "int64", 0)
    cond = layers.less_than(i, layers.fill_constant([1], "int64", 3))
    loop = layers.While(cond)
    with pytest.raises(ConfigError, match="does not change the condition"), loop.block():
        layers.increment(i)
    switch = layers.Switch()
    with pytest.raises(ConfigError, match="outside of"), switch.case(cond):
        pass
    with switch, pytest.raises(ConfigError, match="no case before it"), switch.default():
        pass
    with pytest.raises(ConfigError, match="use a bool Variable of one element"):
        layers.While(i)


@pytest.mark.parametrize("name", ["IfElse", "DynamicRNN"])
def test_what_needs_lod_names_a_replacement(name: str) -> None:
    missing: Any = getattr(layers, name)
    with pytest.raises(ConfigError, match=f"fluid.layers.{name} is not supported: .*use"):
        missing()
