"""The update ops: value against the formula, in place, the same through torch's dispatcher, any layout."""

# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.ops.updates import update_op

Array = np.ndarray[Any, Any]
Step = Callable[..., Any]
RATE, FACTOR = 0.25, 0.5
LR = RATE * FACTOR


def norm(x: Array) -> float:
    return float(np.sqrt((x * x).sum()))


def _sgd(p: Array, g: Array, decay: float) -> Array:
    return p - LR * (g + decay * p)


def _momentum(p: Array, g: Array, v: Array, mu: float, nesterov: bool, decay: float) -> Array:
    g = g + decay * p
    v[:] = mu * v + g
    return p - LR * (g + mu * v if nesterov else v)


def _adamw(
    p: Array, g: Array, m: Array, n: Array, t: Array, b1: float, b2: float, e: float, d: float
) -> Array:
    t += 1
    m[:] = b1 * m + (1 - b1) * g
    n[:] = b2 * n + (1 - b2) * g**2
    return p * (1 - LR * d) - LR * (m / (1 - b1**t)) / (np.sqrt(n / (1 - b2**t)) + e)


def _adam(p: Array, g: Array, m: Array, n: Array, t: Array, b1: float, b2: float, e: float) -> Array:
    return _adamw(p, g, m, n, t, b1, b2, e, 0.0)


def _adamax(p: Array, g: Array, m: Array, n: Array, t: Array, b1: float, b2: float, e: float) -> Array:
    t += 1
    m[:] = b1 * m + (1 - b1) * g
    n[:] = np.maximum(np.abs(g), b2 * n + e)
    return p - LR / (1 - b1**t) * m / n


def _lamb(
    p: Array, g: Array, m: Array, n: Array, t: Array, b1: float, b2: float, e: float, d: float
) -> Array:
    t += 1
    m[:] = b1 * m + (1 - b1) * g
    n[:] = b2 * n + (1 - b2) * g**2
    u = (m / (1 - b1**t)) / (np.sqrt(n / (1 - b2**t)) + e) + d * p
    return p - LR * (norm(p) / norm(u) if norm(p) > 0 and norm(u) > 0 else 1.0) * u


def _lars(p: Array, g: Array, v: Array, mu: float, coeff: float, e: float, d: float) -> Array:
    trusted = d > 0 and norm(p) > 0 and norm(g) > 0
    local = LR * coeff * norm(p) / (norm(g) + d * norm(p) + e) if trusted else LR
    v[:] = mu * v + local * (g + d * p)
    return p - v


def _adagrad(p: Array, g: Array, m: Array, e: float) -> Array:
    m += g**2
    return p - LR * g / (np.sqrt(m) + e)


def _adadelta(p: Array, g: Array, sg: Array, su: Array, rho: float, e: float) -> Array:
    sg[:] = rho * sg + (1 - rho) * g**2
    u = np.sqrt((su + e) / (sg + e)) * g
    su[:] = rho * su + (1 - rho) * u**2
    return p - LR * u


def _rmsprop(
    p: Array, g: Array, ms: Array, mg: Array | None, v: Array | None, rho: float, e: float, mu: float
) -> Any:
    ms[:] = rho * ms + (1 - rho) * g**2
    mean = np.zeros_like(p) if mg is None else mg
    if mg is not None:
        mg[:] = rho * mg + (1 - rho) * g
    step = LR * g / np.sqrt(ms - mean**2 + e)
    if v is None:
        return p - step
    v[:] = mu * v + step
    return p - v


def _ftrl(p: Array, g: Array, s: Array, lin: Array, l1: float, l2: float, power: float) -> Array:
    l1, l2 = l1 + 1e-10, l2 + 1e-10
    new = s + g**2
    lin += g - (new**-power - s**-power) / LR * p
    s[:] = new
    return np.where(np.abs(lin) > l1, (l1 * np.sign(lin) - lin) / (new**-power / LR + 2 * l2), 0.0)


@dataclass(frozen=True)
class Case:
    """An op with settings; of `states`, "x" has the parameter's shape, "t" is a count, "-" is left out."""

    op: OpOverload
    states: str
    settings: tuple[float, ...]
    formula: Step

    def state(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor | None]:
        shapes = {"x": (shape, dtype), "t": ((1,), torch.float32)}
        return [
            None if kind == "-" else torch.zeros(shapes[kind][0], dtype=shapes[kind][1])
            for kind in self.states
        ]


CASES = {
    "sgd": Case(update_op("sgd"), "", (0.0,), _sgd),
    "sgd with decay": Case(update_op("sgd"), "", (0.1,), _sgd),
    "momentum": Case(update_op("momentum"), "x", (0.9, False, 0.0), _momentum),
    "momentum with decay": Case(update_op("momentum"), "x", (0.9, False, 0.1), _momentum),
    "nesterov with decay": Case(update_op("momentum"), "x", (0.8, True, 0.1), _momentum),
    "adam": Case(update_op("adam"), "xxt", (0.9, 0.99, 1e-3), _adam),
    "adamw": Case(update_op("adamw"), "xxt", (0.8, 0.999, 1e-8, 0.1), _adamw),
    "adamax": Case(update_op("adamax"), "xxt", (0.9, 0.99, 1e-3), _adamax),
    "adagrad": Case(update_op("adagrad"), "x", (1e-3,), _adagrad),
    "adadelta": Case(update_op("adadelta"), "xx", (0.9, 1e-3), _adadelta),
    "rmsprop": Case(update_op("rmsprop"), "x--", (0.9, 1e-3, 0.0), _rmsprop),
    "rmsprop with momentum": Case(update_op("rmsprop"), "x-x", (0.9, 1e-3, 0.8), _rmsprop),
    "rmsprop centered": Case(update_op("rmsprop"), "xx-", (0.9, 1e-3, 0.0), _rmsprop),
    "rmsprop centered with momentum": Case(update_op("rmsprop"), "xxx", (0.9, 1e-3, 0.8), _rmsprop),
    "lamb": Case(update_op("lamb"), "xxt", (0.9, 0.99, 1e-3, 0.1), _lamb),
    "lamb without decay": Case(update_op("lamb"), "xxt", (0.9, 0.99, 1e-3, 0.0), _lamb),
    "lars_momentum": Case(update_op("lars_momentum"), "x", (0.9, 0.01, 1e-3, 0.1), _lars),
    "lars_momentum without decay": Case(update_op("lars_momentum"), "x", (0.9, 0.01, 0.0, 0.0), _lars),
    "ftrl": Case(update_op("ftrl"), "xx", (0.0, 0.0, -0.5), _ftrl),
    "ftrl with l1 and l2": Case(update_op("ftrl"), "xx", (0.3, 0.2, -0.7), _ftrl),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
SHAPE = (4, 3, 2, 5)


def rate() -> Tensor:
    return torch.tensor([RATE])


def call(case: Case, param: Tensor, grad: Tensor, states: list[Tensor | None]) -> None:
    OpSpec.known[case.op].kernel(param, grad, *states, rate(), FACTOR, *case.settings)


@each_case
@pytest.mark.parametrize("shape", [SHAPE, (1,), (7, 3)])
def test_three_steps_follow_the_formula(case: Case, shape: tuple[int, ...]) -> None:
    param = torch.randn(shape, dtype=torch.float64)
    states = case.state(shape)
    expected = param.numpy().copy()
    known: list[Any] = [None if s is None else s.numpy().astype(np.float64) for s in states]
    for _ in range(3):
        grad = torch.randn(shape, dtype=torch.float64)
        call(case, param, grad, states)
        expected = case.formula(expected, grad.numpy(), *known, *case.settings)
        np.testing.assert_allclose(param.numpy(), expected, rtol=1e-9, atol=1e-12)
    for state, wanted in zip(states, known, strict=True):
        if state is not None:
            np.testing.assert_allclose(state.numpy(), wanted, rtol=1e-9, atol=1e-12)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parameter_keeps_its_memory_and_dtype_and_the_gradient_its_value(
    case: Case, dtype: torch.dtype
) -> None:
    param, grad = torch.randn(SHAPE).to(dtype), torch.randn(SHAPE).to(dtype)
    before, address, gradient = param.clone(), param.data_ptr(), grad.clone()
    call(case, param, grad, case.state(SHAPE, dtype))
    assert param.data_ptr() == address
    assert param.dtype == dtype
    assert not torch.equal(param, before)
    assert torch.equal(grad, gradient)


@each_case
def test_a_channels_last_parameter_with_a_contiguous_gradient_and_state_is_updated_alike(case: Case) -> None:
    plain, grad = torch.randn(SHAPE), torch.randn(SHAPE)
    param = plain.clone().contiguous(memory_format=torch.channels_last)
    mixed, states = case.state(SHAPE, torch.float32), case.state(SHAPE, torch.float32)
    for step in range(2):
        call(case, param, grad if step else grad.contiguous(memory_format=torch.channels_last), mixed)
        call(case, plain, grad, states)
    torch.testing.assert_close(param, plain)
    assert param.is_contiguous(memory_format=torch.channels_last)
    for a, b in zip(mixed, states, strict=True):
        torch.testing.assert_close(a, b)


@each_case
def test_the_op_does_what_its_kernel_does_and_returns_nothing_fake_or_real(case: Case) -> None:
    param, grad = torch.randn(SHAPE), torch.randn(SHAPE)
    other, states = param.clone(), case.state(SHAPE, torch.float32)
    call(case, param, grad, case.state(SHAPE, torch.float32))
    assert case.op(other, grad, *states, rate(), FACTOR, *case.settings) is None
    assert torch.equal(param, other)
    with FakeTensorMode() as mode:
        fakes = [None if t is None else mode.from_tensor(t) for t in (param, grad, *states, rate())]
        assert case.op(*fakes, FACTOR, *case.settings) is None
        assert isinstance(fakes[0], Tensor)
        assert fakes[0].shape == param.shape


@each_case
def test_the_schema_says_that_parameter_and_state_change_and_nothing_else(case: Case) -> None:
    written = [
        a.name for a in case.op._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    tensors = [a.name for a in case.op._schema.arguments if "Tensor" in str(a.type)]
    assert written == [name for name in tensors if name not in ("grad", "rate", "skip")]


@each_case
def test_a_rate_of_zero_leaves_the_parameter_as_it_is(case: Case) -> None:
    param = torch.randn(SHAPE)
    before, states = param.clone(), case.state(SHAPE, torch.float32)
    case.op(param, torch.randn(SHAPE), *states, torch.zeros(1), FACTOR, *case.settings)
    assert torch.equal(param, before)


@pytest.mark.parametrize("case", [CASES["lamb"], CASES["lars_momentum"]], ids=["lamb", "lars_momentum"])
@pytest.mark.parametrize(("param", "grad"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_norm_of_zero_gives_no_nan(case: Case, param: float, grad: float) -> None:
    p, g = torch.full(SHAPE, param, dtype=torch.float64), torch.full(SHAPE, grad, dtype=torch.float64)
    states = case.state(SHAPE)
    known = [s.numpy().astype(np.float64) for s in states if s is not None]
    expected = case.formula(p.numpy().copy(), g.numpy(), *known, *case.settings)
    call(case, p, g, states)
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-9)


def test_centered_rmsprop_stays_finite_where_rounding_makes_the_variance_negative() -> None:
    case = CASES["rmsprop centered"]
    param, grad = torch.zeros(64), torch.linspace(1000, 4000, 64)
    states = case.state((64,), torch.float32)
    for _ in range(200):
        call(case, param, grad, states)
    assert bool(torch.isfinite(param).all())
