"""Weight decay: a number, L1Decay and L2Decay, of the optimizer and of one parameter."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import regularizer as fluid
from argosy.framework.initializer import NumpyArray
from argosy.framework.layer import LayerBuilder, ParamAttr, apply, create_parameter
from argosy.nn.clip import ClipGradByValue
from argosy.optimizer.optimizer import Optimizer
from argosy.regularizer import L1Decay, L2Decay, WeightDecay, to_regularizer

Array = np.ndarray[Any, Any]
START = np.array([[1.5, -0.5], [0.0, 2.0]])
SLOPE = np.array([[1.0, 2.0], [3.0, -4.0]])
RATE = 0.25


def train(opt: Optimizer, steps: int = 1, **attrs: Any) -> Array:
    """What becomes of a parameter whose gradient is SLOPE."""
    program = default_main_program()
    w = create_parameter(program, "w", START.shape, "float64", NumpyArray(START), **attrs)
    slope = torch.from_numpy(SLOPE)
    opt.minimize(apply("plane", lambda w: (w * slope).sum().reshape(1), w))
    executor = Executor()
    executor.run(default_startup_program())
    for _ in range(steps):
        executor.run(program)
    return global_scope().get("w").numpy().copy()


def optimize_ops() -> list[str]:
    nodes = [n for n in default_main_program().graph.nodes if n.meta["role"] == "optimize"]
    return [n.target._opname for n in nodes]


@pytest.mark.parametrize("decay", [0.5, L2Decay(0.5), fluid.L2DecayRegularizer(0.5), fluid.L2Decay(0.5)])
def test_l2_adds_the_parameter_to_the_gradient(decay: Any) -> None:
    trained = train(optimizer.SGD(RATE, weight_decay=decay))
    np.testing.assert_allclose(trained, START - RATE * (SLOPE + 0.5 * START), rtol=1e-12)
    assert optimize_ops() == ["sgd"]


@pytest.mark.parametrize("decay", [L1Decay(0.5), fluid.L1DecayRegularizer(regularization_coeff=0.5)])
def test_l1_adds_the_parameters_sign_to_the_gradient(decay: Any) -> None:
    trained = train(optimizer.SGD(RATE, weight_decay=decay))
    np.testing.assert_allclose(trained, START - RATE * (SLOPE + 0.5 * np.sign(START)), rtol=1e-12)
    assert optimize_ops() == ["sign", "add", "sgd"]


@pytest.mark.parametrize(
    ("make", "ops"),
    [
        (lambda decay: optimizer.SGD(RATE, weight_decay=decay), ["sgd"]),
        (lambda decay: optimizer.Momentum(RATE, weight_decay=decay), ["momentum"]),
        (lambda decay: optimizer.Adam(RATE, weight_decay=decay), ["add", "adam"]),
        (lambda decay: optimizer.RMSProp(RATE, weight_decay=decay), ["add", "rmsprop"]),
        (lambda decay: optimizer.LarsMomentum(RATE, weight_decay=decay), ["add", "lars_momentum"]),
    ],
)
def test_l2_is_a_part_of_the_update_of_sgd_and_momentum_and_a_node_elsewhere(
    make: Callable[[Any], Optimizer], ops: list[str]
) -> None:
    train(make(0.1))
    assert optimize_ops() == ops


@pytest.mark.parametrize("decay", [L1Decay(0.0), L2Decay(), 0.0, None])
def test_no_decay_is_no_node(decay: Any) -> None:
    trained = train(optimizer.Adagrad(RATE, weight_decay=decay))
    assert optimize_ops() == ["adagrad"]
    np.testing.assert_allclose(trained, START - RATE * SLOPE / (np.abs(SLOPE) + 1e-6), rtol=1e-7)


@pytest.mark.parametrize(
    ("own", "added"),
    [(L1Decay(0.5), 0.5 * np.sign(START)), (L2Decay(0.125), 0.125 * START), (L2Decay(0.0), 0 * START)],
)
def test_a_parameters_regularizer_goes_before_the_optimizers(own: WeightDecay, added: Array) -> None:
    trained = train(optimizer.SGD(RATE, weight_decay=0.75), regularizer=own)
    np.testing.assert_allclose(trained, START - RATE * (SLOPE + added), rtol=1e-12)


def test_a_parameters_regularizer_counts_without_the_optimizers_and_comes_from_param_attr() -> None:
    x = default_main_program().data("x", [None, 2], "float64")
    layer = LayerBuilder("fc")
    w = layer.parameter(ParamAttr(regularizer=L2Decay(0.5), initializer=NumpyArray(START)), [2, 2], "float64")
    loss = layer.run(lambda x, w: (x @ w).sum().reshape(1), x, w)
    assert isinstance(loss, Variable)
    optimizer.Momentum(RATE).minimize(loss)
    executor = Executor()
    executor.run(default_startup_program())
    executor.run(default_main_program(), {"x": np.zeros((3, 2))})
    np.testing.assert_allclose(global_scope().get("fc_0.w_0").numpy(), START * (1 - RATE * 0.5), rtol=1e-12)


def test_decay_comes_after_clipping_and_is_not_clipped() -> None:
    clip = ClipGradByValue(0.5)
    trained = train(optimizer.SGD(RATE, weight_decay=L1Decay(2.0), grad_clip=clip))
    np.testing.assert_allclose(
        trained, START - RATE * (np.clip(SLOPE, -0.5, 0.5) + 2.0 * np.sign(START)), rtol=1e-12
    )


def test_adamw_adds_a_parameters_regularizer_to_its_own_decay() -> None:
    param = torch.tensor(START, requires_grad=True)
    reference = torch.optim.AdamW([param], RATE, weight_decay=0.1)
    for _ in range(3):
        param.grad = torch.from_numpy(SLOPE) + 0.5 * param.detach()
        reference.step()
    trained = train(optimizer.AdamW(RATE, weight_decay=0.1), steps=3, regularizer=L2Decay(0.5))
    np.testing.assert_allclose(trained, param.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("coeff", [-0.1, float("nan"), float("inf"), "0.1", None, True])
def test_a_wrong_coefficient_is_refused(coeff: Any) -> None:
    with pytest.raises(ConfigError, match=r"coeff is .*; use a finite number of at least 0"):
        L2Decay(coeff)
    with pytest.raises(ConfigError, match="L1DecayRegularizer: coeff"):
        fluid.L1DecayRegularizer(coeff)


def test_a_parameter_with_a_wrong_regularizer_is_named() -> None:
    with pytest.raises(ConfigError, match="regularizer of parameter 'w' is 'L2'; use a number"):
        train(optimizer.SGD(RATE), regularizer="L2")


def test_a_regularizer_shows_its_coefficient() -> None:
    assert repr(to_regularizer(0.25)) == "L2Decay(0.25)"
    assert repr(L1Decay(0.5)) == "L1Decay(0.5)"
