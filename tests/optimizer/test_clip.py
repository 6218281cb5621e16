"""Gradient clipping: against torch.nn.utils, what stays as it is, and what is refused."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from argosy import optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import clip as fluid
from argosy.framework.initializer import NumpyArray
from argosy.framework.layer import apply, create_parameter
from argosy.nn.clip import ClipGradBase, ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue

Array = np.ndarray[Any, Any]
SHAPES = {"w": (4, 3, 3, 3), "v": (7,), "u": (2, 5)}


def slopes(scale: float = 1.0) -> dict[str, Array]:
    draw = np.random.default_rng(3)
    return {name: scale * draw.standard_normal(shape) for name, shape in SHAPES.items()}


def build(grads: dict[str, Array], attrs: dict[str, dict[str, Any]] | None = None) -> Variable:
    """A loss whose gradients are these, for parameters that start at zero."""
    program = default_main_program()
    parameters = [
        create_parameter(
            program, n, g.shape, "float64", NumpyArray(np.zeros_like(g)), **(attrs or {}).get(n, {})
        )
        for n, g in grads.items()
    ]
    given_ = [torch.from_numpy(g) for g in grads.values()]

    def plane(*ws: Tensor) -> Tensor:
        return torch.stack([(w * g).sum() for w, g in zip(ws, given_, strict=True)]).sum().reshape(1)

    loss = apply("plane", plane, *parameters)
    assert isinstance(loss, Variable)
    return loss


def clipped(clip: ClipGradBase, grads: dict[str, Array], attrs: Any = None) -> dict[str, Array]:
    """The gradients that the update sees: a step of SGD at rate 1 from zero."""
    optimizer.SGD(1.0, grad_clip=clip).minimize(build(grads, attrs))
    executor = Executor()
    executor.run(default_startup_program())
    executor.run(default_main_program())
    return {name: -global_scope().get(name).numpy() for name in grads}


def by_torch(function: Callable[[list[Tensor]], Any], grads: dict[str, Array]) -> dict[str, Array]:
    parameters = {
        name: torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for name, g in grads.items()
    }
    for p, g in zip(parameters.values(), grads.values(), strict=True):
        p.grad = torch.from_numpy(g.copy())
    function(list(parameters.values()))
    return {name: p.grad.numpy() for name, p in parameters.items() if p.grad is not None}


def assert_same(actual: dict[str, Array], expected: dict[str, Array], rtol: float = 1e-12) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=rtol, err_msg=name)


def test_by_value_is_torchs_clip_grad_value() -> None:
    expected = by_torch(lambda p: torch.nn.utils.clip_grad_value_(p, 0.5), slopes())
    assert_same(clipped(ClipGradByValue(0.5), slopes()), expected)


def test_by_value_with_a_lower_limit_of_its_own() -> None:
    expected = {name: np.clip(g, -0.125, 0.5) for name, g in slopes().items()}
    assert_same(clipped(ClipGradByValue(max=0.5, min=-0.125), slopes()), expected)


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e6])
def test_by_norm_is_torchs_clip_grad_norm_on_each_gradient(limit: float) -> None:
    expected = by_torch(lambda ps: [torch.nn.utils.clip_grad_norm_(p, limit) for p in ps], slopes())
    # torch divides by norm + 1e-6
    assert_same(clipped(ClipGradByNorm(limit), slopes()), expected, rtol=2e-6)


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e6])
def test_by_global_norm_is_torchs_clip_grad_norm_on_all(limit: float) -> None:
    expected = by_torch(lambda ps: torch.nn.utils.clip_grad_norm_(ps, limit), slopes())
    assert_same(clipped(ClipGradByGlobalNorm(limit), slopes()), expected, rtol=2e-6)


@pytest.mark.parametrize("clip", [ClipGradByNorm(1e3), ClipGradByGlobalNorm(1e3), ClipGradByValue(1e3)])
def test_gradients_within_the_limit_stay_bit_for_bit(clip: ClipGradBase) -> None:
    assert_same(clipped(clip, slopes()), slopes(), rtol=0)


@pytest.mark.parametrize("clip", [ClipGradByNorm(1.0), ClipGradByGlobalNorm(1.0)])
def test_gradients_of_zero_stay_zero(clip: ClipGradBase) -> None:
    assert_same(clipped(clip, slopes(0.0)), slopes(0.0), rtol=0)


def test_a_parameter_with_need_clip_false_is_neither_clipped_nor_counted() -> None:
    counted = {name: g for name, g in slopes().items() if name != "v"}
    norm = np.sqrt(sum((g**2).sum() for g in counted.values()))
    actual = clipped(ClipGradByGlobalNorm(0.5), slopes(), {"v": {"need_clip": False}})
    assert_same(actual, {**{name: g * 0.5 / norm for name, g in counted.items()}, "v": slopes()["v"]})


@pytest.mark.parametrize("clip", [ClipGradByNorm(0.5), ClipGradByGlobalNorm(0.5), ClipGradByValue(0.1)])
def test_nothing_happens_if_no_parameter_is_to_be_clipped(clip: ClipGradBase) -> None:
    assert_same(clipped(clip, slopes(), {name: {"need_clip": False} for name in SHAPES}), slopes(), rtol=0)
    ops = [n.target._opname for n in default_main_program().graph.nodes if n.meta["role"] == "optimize"]
    assert ops == ["sgd", "sgd", "sgd"]


@pytest.mark.parametrize(
    "clip",
    [
        fluid.GradientClipByNorm(0.5, need_clip=lambda p: p.name == "w"),
        fluid.GradientClipByGlobalNorm(0.5, need_clip=lambda p: p.name == "w"),
    ],
)
def test_the_names_of_1x_choose_parameters_by_a_function(clip: ClipGradBase) -> None:
    w = slopes()["w"]
    assert_same(clipped(clip, slopes()), {**slopes(), "w": w * 0.5 / np.linalg.norm(w.ravel())})


def test_by_value_of_1x_is_that_of_2() -> None:
    assert isinstance(fluid.GradientClipByValue(0.5), ClipGradByValue)
    expected = {name: np.clip(g, -0.25, 0.5) for name, g in slopes().items()}
    assert_same(clipped(fluid.GradientClipByValue(0.5, -0.25), slopes()), expected)


@pytest.mark.parametrize("first", [0.0, 0.5])
def test_momentum_sees_the_clipped_gradient_before_decay(first: float) -> None:
    program = default_main_program()
    w = create_parameter(program, "w", [3], "float64", NumpyArray(np.full(3, first)))
    loss = apply("line", lambda w: (w * 4.0).sum().reshape(1), w)
    optimizer.Momentum(0.25, 0.5, weight_decay=0.5, grad_clip=ClipGradByValue(1.0)).minimize(loss)
    executor = Executor()
    executor.run(default_startup_program())
    value, velocity = first, 0.0
    for _ in range(4):
        executor.run(program)
        velocity = 0.5 * velocity + (1.0 + 0.5 * value)
        value -= 0.25 * velocity
        np.testing.assert_allclose(global_scope().get("w").numpy(), value, rtol=1e-12)


def test_each_gradient_is_clipped_right_before_its_update() -> None:
    """So that only one clipped gradient is in memory at a time."""
    optimizer.SGD(1.0, grad_clip=ClipGradByGlobalNorm(0.5)).minimize(build(slopes()))
    ops = [n.target._opname for n in default_main_program().graph.nodes if n.meta["role"] == "optimize"]
    assert ops[-6:] == ["mul", "sgd", "mul", "sgd", "mul", "sgd"]


def test_clipping_by_hand_gives_variables_to_apply() -> None:
    opt = optimizer.SGD(1.0)
    loss = build(slopes(), {"v": {"need_clip": False}})
    pairs = opt.backward(loss)
    limited = ClipGradByNorm(0.5)(pairs)
    assert [p.name for p, _ in limited] == list(SHAPES)
    assert limited[1][1] is pairs[1][1]
    opt.apply_gradients(limited)
    executor = Executor()
    executor.run(default_startup_program())
    fetched = executor.run(default_main_program(), fetch_list=[g for _, g in limited])
    for name, grad in zip(SHAPES, fetched, strict=True):
        np.testing.assert_allclose(-global_scope().get(name).numpy(), grad)
    assert np.linalg.norm(fetched[0].ravel()) == pytest.approx(0.5)
    assert ClipGradByNorm(0.5)([]) == []


@settings(max_examples=50, deadline=None)
@given(
    grads=st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), min_size=1, max_size=4),
    limit=st.floats(1e-3, 1e3),
)
def test_by_global_norm_keeps_the_direction_and_the_limit(grads: list[list[float]], limit: float) -> None:
    tensors = [torch.tensor(g, dtype=torch.float64) for g in grads]
    actual = torch.cat(list(ClipGradByGlobalNorm(limit).clip(tensors)))
    before = torch.cat(tensors)
    norm = float(torch.linalg.vector_norm(before))
    assert float(torch.linalg.vector_norm(actual)) <= limit * (1 + 1e-12)
    torch.testing.assert_close(
        actual, before * min(1.0, limit / norm if norm else 1.0), rtol=1e-9, atol=1e-300
    )


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan"), "1", None, True])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    for make in (ClipGradByNorm, ClipGradByGlobalNorm, ClipGradByValue, fluid.GradientClipByNorm):
        with pytest.raises(ConfigError, match=f"^{make.__name__}: .* is .*; use a finite number above 0"):
            make(limit)


def test_limits_in_the_wrong_order_and_a_wrong_choice_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min is 2\.0, above max 1\.0; swap them"):
        ClipGradByValue(1.0, 2.0)
    with pytest.raises(
        ConfigError, match="GradientClipByNorm: need_clip is 'w'; use a function of a Parameter"
    ):
        fluid.GradientClipByNorm(1.0, need_clip="w")  # type: ignore[arg-type]  # the point of the test


def test_the_base_class_clips_nothing() -> None:
    with pytest.raises(NotImplementedError, match=r"ClipGradBase has no clip\(grads\)"):
        optimizer.SGD(1.0, grad_clip=ClipGradBase()).minimize(build(slopes()))
