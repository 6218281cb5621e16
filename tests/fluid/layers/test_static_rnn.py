"""StaticRNN: the values and gradients of the equivalent loop."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers
from argosy.static import data


def test_it_computes_what_the_loop_over_the_sequence_computes() -> None:
    x, start = data("x", [4, None, 3]), data("start", [None, 5])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        count = rnn.memory(shape=[-1, 1], batch_ref=word, init_value=1.0)
        previous = rnn.memory(init=start)
        hidden = layers.fc([word, previous], 5, act="tanh")
        rnn.update_memory(previous, hidden)
        rnn.update_memory(count, count + 1)
        rnn.step_output(hidden)
        rnn.output(hidden * count)
    out, scaled = rnn()
    assert (out.shape, scaled.shape) == ((4, -1, 5), (4, -1, 5))
    pairs = append_backward(layers.mean(scaled * out))
    exe = Executor()
    exe.run(default_startup_program())
    for batch in (2, 3):
        rng = np.random.default_rng(batch)
        fed = {"x": rng.standard_normal((4, batch, 3)), "start": rng.standard_normal((batch, 5))}
        feed = {name: value.astype("float32") for name, value in fed.items()}
        first, *gradients = exe.run(feed=feed, fetch_list=[out, *(g for _, g in pairs)])
        a, b, bias = (global_scope().get(p.name).clone().requires_grad_() for p, _ in pairs)
        h, states = torch.from_numpy(feed["start"]), []
        for word_t in torch.from_numpy(feed["x"]):
            h = torch.tanh(word_t @ a + h @ b + bias)
            states.append(h)
        stacked = torch.stack(states)
        np.testing.assert_allclose(first, stacked.detach(), rtol=1e-5, atol=1e-6)
        counts = torch.arange(1.0, 5.0).reshape(4, 1, 1)
        expected = torch.autograd.grad((stacked * stacked * counts).mean(), [a, b, bias])
        for ours, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_wrong_uses_raise() -> None:
    rnn = layers.StaticRNN()
    with pytest.raises(ConfigError, match="outside of `with rnn.step"):
        rnn.step_input(data("a", [4, 2]))
    with pytest.raises(ConfigError, match="the length of"):
        step_of(layers.StaticRNN(), data("x", [None, 2]))
    forgetful = layers.StaticRNN()
    with pytest.raises(ConfigError, match="is never updated"):
        step_of(forgetful, data("y", [4, None, 2]))
    with pytest.raises(ConfigError, match="before its step is complete"):
        forgetful()


def step_of(rnn: layers.StaticRNN, x: Variable) -> None:
    """A step with a memory that is not updated."""
    with rnn.step():
        word = rnn.step_input(x)
        rnn.step_output(word + rnn.memory(shape=[-1, 2], batch_ref=word))
