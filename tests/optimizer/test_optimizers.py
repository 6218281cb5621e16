"""Optimizers: training a small program against torch.optim or the formula, rates, state, and what is refused.

Programs are float64, so that a wrong formula cannot hide behind rounding; rates are exact in float32, as a
program keeps them. No Paddle is at hand: where torch has another formula, the one here is from Paddle's
sources.
"""

# SPDX-License-Identifier: Apache-2.0
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from argosy import optimizer
from argosy.engine.errors import ConfigError, ProgramError, ScopeError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import optimizer as fluid
from argosy.framework.initializer import NumpyArray
from argosy.framework.layer import apply, create_parameter
from argosy.optimizer import lr
from argosy.optimizer.fluid_decay import exponential_decay, piecewise_decay
from argosy.optimizer.optimizer import Optimizer

Array = np.ndarray[Any, Any]
Attrs = dict[str, dict[str, Any]]
STEPS = 7
BATCHES = [3, 3, 5, 1, 4, 3, 2]
SHAPES = {"w": (4, 3, 3, 3), "v": (36, 2)}


def first_values() -> dict[str, Array]:
    draw = np.random.default_rng(1)
    return {name: 0.3 * draw.standard_normal(shape) for name, shape in SHAPES.items()}


def feeds(steps: int = STEPS, first: int = 0, dtype: str = "float64") -> list[dict[str, Array]]:
    draw = np.random.default_rng(2)
    array = [{"x": draw.standard_normal((n, 3, 5, 5)), "y": draw.standard_normal((n, 2))} for n in BATCHES]
    return [{name: a.astype(dtype) for name, a in feed.items()} for feed in array[first : first + steps]]


def net(x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return ((torch.tanh(F.conv2d(x, w)).flatten(1) @ v - y) ** 2).mean().reshape(1)


def build(attrs: Attrs | None = None, dtype: str = "float64") -> Variable:
    """The loss of a program with the parameters w (4-D) and v."""
    program = default_main_program()
    x, y = program.data("x", [None, 3, 5, 5], dtype), program.data("y", [None, 2], dtype)
    parameters = [
        create_parameter(program, name, value.shape, dtype, NumpyArray(value), **(attrs or {}).get(name, {}))
        for name, value in first_values().items()
    ]
    loss = apply("net", net, x, y, *parameters)
    assert isinstance(loss, Variable)
    return loss


def values() -> dict[str, Array]:
    return {name: global_scope().get(name).numpy().copy() for name in SHAPES}


def run(executor: Executor, fed: list[dict[str, Array]]) -> None:
    for feed in fed:
        executor.run(default_main_program(), feed)


def train(opt: Optimizer, attrs: Attrs | None = None, dtype: str = "float64") -> dict[str, Array]:
    """The parameters after training."""
    opt.minimize(build(attrs, dtype))
    executor = Executor()
    executor.run(default_startup_program())
    run(executor, feeds(dtype=dtype))
    return values()


def eager(step: Callable[[dict[str, Tensor]], None]) -> dict[str, Array]:
    """The same training in torch: `step` changes the tensors, whose gradients are there."""
    parameters = {name: torch.tensor(value, requires_grad=True) for name, value in first_values().items()}
    for feed in feeds():
        fed = [torch.from_numpy(a) for a in feed.values()]
        for p in parameters.values():
            p.grad = None
        torch.autograd.backward(net(*fed, *parameters.values()))
        with torch.no_grad():
            step(parameters)
    return {name: p.detach().numpy() for name, p in parameters.items()}


def by_torch(make: Callable[[dict[str, Tensor]], torch.optim.Optimizer]) -> dict[str, Array]:
    values: list[torch.optim.Optimizer] = []

    def step(parameters: dict[str, Tensor]) -> None:
        values[:] = values or [make(parameters)]
        values[0].step()

    return eager(step)


Formula = Callable[[int, Array, Array, dict[str, Any]], Any]


def by_formula(update: Formula) -> dict[str, Array]:
    """`update(t, p, g, state)` gives the new p; the state of each parameter is an empty dict at first."""
    state: dict[str, dict[str, Any]] = {name: {} for name in SHAPES}

    def step(parameters: dict[str, Tensor]) -> None:
        for name, p in parameters.items():
            assert p.grad is not None
            t = state[name]["t"] = state[name].get("t", 0) + 1
            p.copy_(torch.from_numpy(update(t, p.numpy().copy(), p.grad.numpy(), state[name])))

    return eager(step)


def assert_same(actual: dict[str, Array], expected: dict[str, Array], rtol: float = 1e-9) -> None:
    for name, value in expected.items():
        assert not np.allclose(value, first_values()[name]), f"{name} was not trained"
        np.testing.assert_allclose(actual[name], value, rtol=rtol, atol=1e-12, err_msg=name)


def list_of(parameters: dict[str, Tensor]) -> list[Tensor]:
    return list(parameters.values())


LIKE_TORCH: dict[str, tuple[Callable[[], Optimizer], Callable[[list[Tensor]], torch.optim.Optimizer]]] = {
    "SGD": (lambda: optimizer.SGD(0.25), lambda p: torch.optim.SGD(p, 0.25)),
    "SGD, decay": (
        lambda: optimizer.SGD(0.25, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.25, weight_decay=0.1),
    ),
    "Momentum": (lambda: optimizer.Momentum(0.25, 0.8), lambda p: torch.optim.SGD(p, 0.25, momentum=0.8)),
    "Momentum, Nesterov, decay": (
        lambda: optimizer.Momentum(0.125, use_nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.125, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "Adam": (lambda: optimizer.Adam(0.125), lambda p: torch.optim.Adam(p, 0.125)),
    "Adam, betas, decay": (
        lambda: optimizer.Adam(0.125, 0.8, 0.95, 1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.125, (0.8, 0.95), 1e-3, weight_decay=0.1),
    ),
    "AdamW": (lambda: optimizer.AdamW(0.125), lambda p: torch.optim.AdamW(p, 0.125, weight_decay=0.01)),
    "AdamW, decay": (
        lambda: optimizer.AdamW(0.125, weight_decay=0.2),
        lambda p: torch.optim.AdamW(p, 0.125, weight_decay=0.2),
    ),
    "Adagrad": (lambda: optimizer.Adagrad(0.125), lambda p: torch.optim.Adagrad(p, 0.125, eps=1e-6)),
    "Adagrad, start, decay": (
        lambda: optimizer.Adagrad(0.125, initial_accumulator_value=0.5, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, 0.125, eps=1e-6, initial_accumulator_value=0.5, weight_decay=0.1),
    ),
    "Adadelta": (lambda: optimizer.Adadelta(1.0), lambda p: torch.optim.Adadelta(p, 1.0, rho=0.95)),
}


@pytest.mark.parametrize("pair", LIKE_TORCH.values(), ids=LIKE_TORCH.keys())
def test_trains_like_torch(pair: tuple[Callable[[], Optimizer], Any]) -> None:
    assert_same(train(pair[0]()), by_torch(lambda p: pair[1](list_of(p))))


@pytest.mark.parametrize("which", ["Momentum, Nesterov, decay", "Adam, betas, decay"])
def test_trains_in_float32_too(which: str) -> None:
    ours, theirs = LIKE_TORCH[which]
    trained = train(ours(), dtype="float32")
    assert trained["w"].dtype == np.float32
    for name, value in by_torch(lambda p: theirs(list_of(p))).items():
        np.testing.assert_allclose(trained[name], value, rtol=2e-3, atol=2e-4)


def norm(x: Array) -> float:
    return float(np.linalg.norm(x.ravel()))


def rmsprop(rho: float, epsilon: float, mu: float, centered: bool) -> Formula:
    def update(t: int, p: Array, g: Array, s: dict[str, Any]) -> Any:
        s["ms"] = rho * s.get("ms", 0) + (1 - rho) * g**2
        s["mg"] = rho * s.get("mg", 0) + (1 - rho) * g
        s["v"] = mu * s.get("v", 0) + 0.125 * g / np.sqrt(s["ms"] - centered * s["mg"] ** 2 + epsilon)
        return p - s["v"]

    return update


def adamax(t: int, p: Array, g: Array, s: dict[str, Any]) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["n"] = np.maximum(np.abs(g), 0.99 * s.get("n", 0) + 1e-3)
    return p - 0.125 / (1 - 0.9**t) * s["m"] / s["n"]


def lamb(t: int, p: Array, g: Array, s: dict[str, Any]) -> Any:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["n"] = 0.999 * s.get("n", 0) + 0.001 * g**2
    u = s["m"] / (1 - 0.9**t) / (np.sqrt(s["n"] / (1 - 0.999**t)) + 1e-6)
    u = u + 0.1 * p if p.ndim == 2 else u  # w is excluded from decay
    return p - 0.125 * norm(p) / norm(u) * u


def lars(t: int, p: Array, g: Array, s: dict[str, Any]) -> Any:
    decay = 0.01 if p.ndim == 4 else 0.0  # v is excluded
    local = 0.5 * (0.1 * norm(p) / (norm(g) + decay * norm(p) + 1e-3) if decay else 1.0)
    s["v"] = 0.9 * s.get("v", 0) + local * (g + decay * p)
    return p - s["v"]


def ftrl(t: int, p: Array, g: Array, s: dict[str, Any]) -> Any:
    old = s.get("s", np.zeros_like(p))
    s["s"] = old + g**2
    s["l"] = s.get("l", 0) + g - (np.sqrt(s["s"]) - np.sqrt(old)) / 0.5 * p
    l1, l2 = 0.01 + 1e-10, 0.2 + 1e-10
    shrunk = (l1 * np.sign(s["l"]) - s["l"]) / (np.sqrt(s["s"]) / 0.5 + 2 * l2)
    return np.where(np.abs(s["l"]) > l1, shrunk, 0.0)


BY_FORMULA: dict[str, tuple[Callable[[], Optimizer], Formula]] = {
    "RMSProp": (lambda: optimizer.RMSProp(0.125), rmsprop(0.95, 1e-6, 0.0, False)),
    "RMSProp, momentum": (
        lambda: optimizer.RMSProp(0.125, 0.9, 1e-3, momentum=0.5),
        rmsprop(0.9, 1e-3, 0.5, False),
    ),
    "RMSProp, centered": (
        lambda: optimizer.RMSProp(0.125, 0.9, 1e-3, momentum=0.5, centered=True),
        rmsprop(0.9, 1e-3, 0.5, True),
    ),
    "Adamax": (lambda: optimizer.Adamax(0.125, 0.9, 0.99, 1e-3), adamax),
    "Lamb": (lambda: optimizer.Lamb(0.125, 0.1, exclude_from_weight_decay_fn=lambda p: p.name == "w"), lamb),
    "LarsMomentum": (
        lambda: optimizer.LarsMomentum(0.5, 0.9, 0.1, 0.01, exclude_from_weight_decay=["v"], epsilon=1e-3),
        lars,
    ),
    "Ftrl": (lambda: optimizer.Ftrl(0.5, l1=0.01, l2=0.2), ftrl),
}


@pytest.mark.parametrize("pair", BY_FORMULA.values(), ids=BY_FORMULA.keys())
def test_trains_by_paddles_formula(pair: tuple[Callable[[], Optimizer], Formula]) -> None:
    assert_same(train(pair[0]()), by_formula(pair[1]), rtol=1e-7)


FLUID: dict[str, tuple[Callable[[], Optimizer], Callable[[], Optimizer]]] = {
    "SGD": (lambda: fluid.SGDOptimizer(0.25), lambda: optimizer.SGD(0.25)),
    "Momentum": (
        lambda: fluid.MomentumOptimizer(0.25, 0.9, regularization=0.1, use_nesterov=True),
        lambda: optimizer.Momentum(0.25, 0.9, weight_decay=0.1, use_nesterov=True),
    ),
    "LarsMomentum": (
        lambda: fluid.LarsMomentumOptimizer(0.5, 0.9, 0.1, exclude_from_weight_decay=["v"]),
        lambda: optimizer.LarsMomentum(0.5, 0.9, 0.1, exclude_from_weight_decay=["v"]),
    ),
    "Adagrad": (lambda: fluid.Adagrad(0.125, 1e-5), lambda: optimizer.Adagrad(0.125, 1e-5)),
    "Adam": (lambda: fluid.Adam(0.125, 0.8), lambda: optimizer.Adam(0.125, 0.8)),
    "Adamax": (lambda: fluid.Adamax(0.125), lambda: optimizer.Adamax(0.125)),
    "Adadelta": (lambda: fluid.Adadelta(1.0, 1e-5, 0.9), lambda: optimizer.Adadelta(1.0, 1e-5, 0.9)),
    "RMSProp": (
        lambda: fluid.RMSProp(0.125, 0.9, momentum=0.5, centered=True),
        lambda: optimizer.RMSProp(0.125, 0.9, momentum=0.5, centered=True),
    ),
    "Ftrl": (lambda: fluid.Ftrl(0.5, 0.1, 0.2, -0.6), lambda: optimizer.Ftrl(0.5, 0.1, 0.2, -0.6)),
    "Lamb": (lambda: fluid.Lamb(0.125), lambda: optimizer.Lamb(0.125)),
}


def build_small() -> Variable:
    """A loss of the same parameters without feeds, for tests that look at the program and do not run it."""
    values = [
        create_parameter(default_main_program(), name, value.shape, "float64", NumpyArray(value))
        for name, value in first_values().items()
    ]
    loss = apply("small", lambda w, v: ((w * w).sum() + (v * v).sum()).reshape(1), *values)
    assert isinstance(loss, Variable)
    return loss


def updates(opt: Optimizer) -> list[str]:
    """The update nodes with all their settings, as they are printed."""
    with program_guard(Program("main"), Program("startup")), names.guard():
        opt.minimize(build_small())
        return [line for line in str(default_main_program()).splitlines() if line.startswith("optimize")]


@pytest.mark.parametrize("pair", FLUID.values(), ids=FLUID.keys())
def test_the_names_of_1x_make_the_same_program(
    pair: tuple[Callable[[], Optimizer], Callable[[], Optimizer]],
) -> None:
    assert isinstance(pair[0](), type(pair[1]()))
    assert updates(pair[0]()) == updates(pair[1]())


def test_the_lamb_of_1x_takes_regularization_too() -> None:
    assert "add(w@GRAD, w, alpha=0.5)" in updates(fluid.Lamb(0.125, regularization=0.5))[0]


# --- which parameters, at which rate ----------------------------------------------------------------------


def test_a_parameters_learning_rate_is_a_factor_on_the_optimizers() -> None:
    def groups(p: dict[str, Tensor]) -> torch.optim.Optimizer:
        listed: list[dict[str, Any]] = [{"params": p["w"], "lr": 0.125}, {"params": p["v"]}]
        return torch.optim.SGD(listed, 0.25, momentum=0.9)

    assert_same(train(optimizer.Momentum(0.25), {"w": {"learning_rate": 0.5}}), by_torch(groups))


def test_a_factor_of_zero_keeps_a_parameter() -> None:
    trained = train(optimizer.AdamW(0.125), {"w": {"learning_rate": 0.0}})
    np.testing.assert_array_equal(trained["w"], first_values()["w"])
    assert not np.allclose(trained["v"], first_values()["v"])


def test_a_frozen_parameter_is_not_trained_and_has_no_state() -> None:
    trained = train(optimizer.Momentum(0.25), {"w": {"trainable": False}})
    np.testing.assert_array_equal(trained["w"], first_values()["w"])
    assert "w_velocity_0" not in default_main_program().vars


@pytest.mark.parametrize("where", ["constructor", "minimize", "minimize of 1.x", "no_grad_set"])
def test_only_the_listed_parameters_are_trained(where: str) -> None:
    loss = build()
    w, v = default_main_program().all_parameters()
    if where == "constructor":
        _, pairs = optimizer.SGD(0.25, parameters=[v]).minimize(loss)
    elif where == "minimize":
        _, pairs = optimizer.SGD(0.25, parameters=[w]).minimize(loss, parameters=["v"])
    elif where == "minimize of 1.x":
        _, pairs = fluid.SGD(0.25, parameter_list=[w]).minimize(loss, parameter_list=[v])
    else:
        _, pairs = optimizer.SGD(0.25).minimize(loss, no_grad_set={w})
    assert [p.name for p, _ in pairs] == ["v"]
    executor = Executor()
    executor.run(default_startup_program())
    run(executor, feeds(1))
    np.testing.assert_array_equal(values()["w"], first_values()["w"])
    assert not np.allclose(values()["v"], first_values()["v"])


def test_adamw_decays_the_parameters_that_its_function_names() -> None:
    def groups(p: dict[str, Tensor]) -> torch.optim.Optimizer:
        listed: list[dict[str, Any]] = [{"params": p["w"]}, {"params": p["v"], "weight_decay": 0.0}]
        return torch.optim.AdamW(listed, 0.125, weight_decay=0.5)

    opt = optimizer.AdamW(0.125, weight_decay=0.5, apply_decay_param_fun=lambda name: name == "w")
    assert_same(train(opt), by_torch(groups))


# --- the rate ---------------------------------------------------------------------------------------------


def build_line() -> tuple[Variable, Callable[[], float]]:
    """A loss whose gradient is 1, so that w falls by the rate; and a step that returns this rate."""
    program = default_main_program()
    x = program.data("x", [None])
    w = create_parameter(program, "w", [1], "float32", NumpyArray(np.zeros(1, np.float32)))
    loss = apply("line", lambda x, w: (x * w).sum().reshape(1), x, w)
    executor = Executor()

    def step() -> float:
        if "w" not in global_scope():
            executor.run(default_startup_program())
        before = global_scope().get("w").item()
        executor.run(program, {"x": np.ones(1, np.float32)})
        step.compiled = [id(c) for c in executor._compiled[program].values()]  # type: ignore[attr-defined]  # for a test
        return before - global_scope().get("w").item()

    return loss, step


def test_a_scheduler_is_asked_before_each_run_and_stepped_by_the_user() -> None:
    loss, step = build_line()
    schedule = lr.StepDecay(0.5, step_size=2, gamma=0.5)
    opt = optimizer.SGD(schedule)
    opt.minimize(loss)
    used = []
    for _ in range(5):
        used.append(step())
        assert opt.get_lr() == schedule()
        schedule.step()
    assert used == [0.5, 0.5, 0.25, 0.25, 0.125]


def test_a_schedule_of_1x_steps_by_itself() -> None:
    loss, step = build_line()
    fluid.SGDOptimizer(learning_rate=exponential_decay(0.5, 1, 0.5)).minimize(loss)
    assert [step() for _ in range(4)] == [0.5, 0.25, 0.125, 0.0625]


def test_two_optimizers_share_the_rate_of_one_schedule() -> None:
    loss, step = build_line()
    program, schedule = default_main_program(), piecewise_decay([2], [0.5, 0.25])
    other = create_parameter(program, "u", [1], "float32", NumpyArray(np.ones(1, np.float32)))
    second = apply("square", lambda u: u * u, other)
    fluid.SGD(schedule, parameter_list=["w"]).minimize(loss)
    fluid.SGD(schedule, parameter_list=["u"]).minimize(second)
    assert [name for name, _ in program.training.schedulers] == ["learning_rate_0"]
    assert [step() for _ in range(4)] == [0.5, 0.5, 0.25, 0.25]


def test_two_optimizers_have_a_rate_and_state_each() -> None:
    loss, _ = build_line()
    first, second = optimizer.Momentum(0.5), optimizer.Momentum(0.25)
    pairs = first.backward(loss)
    first.apply_gradients(pairs)
    second.apply_gradients(pairs)
    states = [name for name in default_main_program().persistables() if name != "w"]
    assert states == ["learning_rate_0", "w_velocity_0", "learning_rate_1", "w_velocity_1"]


def test_the_same_optimizer_keeps_its_state_when_it_is_used_again() -> None:
    loss, _ = build_line()
    opt = optimizer.Momentum(0.5)
    pairs = opt.backward(loss)
    opt.apply_gradients(pairs)
    opt.apply_gradients(pairs)
    assert "w_velocity_1" not in default_main_program().vars
    assert "learning_rate_1" not in default_main_program().vars


@pytest.mark.parametrize("scheduled", [True, False])
def test_another_rate_recompiles_nothing(scheduled: bool) -> None:
    loss, step = build_line()
    schedule = lr.PiecewiseDecay([1, 2], [0.5, 0.25, 0.125])
    opt = optimizer.SGD(schedule if scheduled else 0.5)
    opt.minimize(loss)
    used, compiled = [], []
    for rate in (0.25, 0.125, 0.125):
        used.append(step())
        compiled.append(step.compiled)  # type: ignore[attr-defined]  # for a test
        if scheduled:
            schedule.step()
        else:
            opt.set_lr(rate)
    assert used == [0.5, 0.25, 0.125]
    assert len(compiled[0]) == 1
    assert compiled[0] == compiled[1] == compiled[2]


def test_get_lr_gives_the_number_that_was_given_and_set_lr_another() -> None:
    loss, step = build_line()
    opt = fluid.SGD(0.1)
    opt.minimize(loss)
    assert opt.get_lr() == 0.1
    step()
    assert opt.get_lr() == 0.1  # not 0.10000000149, its value as float32
    opt.set_lr(0.3)
    assert opt.get_lr() == opt.current_step_lr() == 0.3
    assert step() == pytest.approx(0.3)
    global_scope().get("learning_rate_0").fill_(0.5)  # as a loaded checkpoint does
    assert opt.get_lr() == 0.5


def test_set_lr_before_minimize_is_the_first_rate() -> None:
    loss, step = build_line()
    opt = optimizer.SGD(0.5)
    opt.set_lr(0.25)
    opt.minimize(loss)
    assert step() == 0.25


def test_set_lr_refuses_a_schedule_and_a_rate_that_the_startup_program_would_overwrite() -> None:
    loss, _ = build_line()
    scheduled = optimizer.SGD(lr.StepDecay(0.5, 2))
    with pytest.raises(ConfigError, match="the rate comes from StepDecay; step the scheduler"):
        scheduled.set_lr(0.1)
    plain = optimizer.SGD(0.5)
    plain.minimize(loss)
    with pytest.raises(ConfigError, match="run the startup program first"):
        plain.set_lr(0.1)
    assert plain.get_lr() == 0.5


# --- programs ---------------------------------------------------------------------------------------------


def test_the_program_shows_one_line_for_each_update() -> None:
    nodes, pairs = optimizer.Momentum(0.1, weight_decay=1e-4).minimize(build_small())
    lines = [line for line in str(default_main_program()).splitlines() if line.startswith("optimize")]
    assert [line.split(" = ")[1].rstrip() for line in lines] == [
        "momentum(w, w@GRAD, w_velocity_0, learning_rate_0, 1.0, 0.9, False, 0.0001)",
        "momentum(v, v@GRAD, v_velocity_0, learning_rate_0, 1.0, 0.9, False, 0.0001)",
    ]
    assert [(p.name, g.name) for p, g in pairs] == [("w", "w@GRAD"), ("v", "v@GRAD")]
    assert [node.meta["role"] for node in nodes] == ["optimize", "optimize"]
    assert all("test_optimizers.py" in str(node.meta["source"]) for node in nodes)


STATES = {
    "SGD": (lambda: optimizer.SGD(0.1), []),
    "Momentum": (lambda: optimizer.Momentum(0.1), ["velocity"]),
    "LarsMomentum": (lambda: optimizer.LarsMomentum(0.1), ["velocity"]),
    "Adam": (lambda: optimizer.Adam(0.1), ["moment1", "moment2", "step"]),
    "AdamW": (lambda: optimizer.AdamW(0.1), ["moment1", "moment2", "step"]),
    "Lamb": (lambda: optimizer.Lamb(0.1), ["moment1", "moment2", "step"]),
    "Adamax": (lambda: optimizer.Adamax(0.1), ["moment", "inf_norm", "step"]),
    "Adagrad": (lambda: optimizer.Adagrad(0.1), ["moment"]),
    "Adadelta": (lambda: optimizer.Adadelta(0.1), ["_avg_squared_grad", "_avg_squared_update"]),
    "RMSProp": (lambda: optimizer.RMSProp(0.1), ["mean_square"]),
    "RMSProp, all": (
        lambda: optimizer.RMSProp(0.1, momentum=0.5, centered=True),
        ["mean_square", "mean_grad", "momentum"],
    ),
    "Ftrl": (lambda: optimizer.Ftrl(0.1), ["squared", "linear"]),
}


@pytest.mark.parametrize("pair", STATES.values(), ids=STATES.keys())
def test_the_state_has_paddles_names_and_the_parameters_shape(
    pair: tuple[Callable[[], Optimizer], list[str]],
) -> None:
    pair[0]().minimize(build_small())
    actual = {v.name: (v.shape, v.dtype) for v in default_main_program().persistables().values()}
    expected = {"w": (SHAPES["w"], torch.float64), "v": (SHAPES["v"], torch.float64)}
    expected["learning_rate_0"] = ((1,), torch.float32)
    for name, shape in SHAPES.items():
        for slot in pair[1]:
            expected[f"{name}_{slot}_0"] = ((1,), torch.float32) if slot == "step" else (shape, torch.float64)
    assert actual == expected
    assert actual.keys() == default_startup_program().vars.keys()


def test_the_optimizers_name_is_a_part_of_its_states_names() -> None:
    optimizer.Momentum(0.1, name="fast").minimize(build_small())
    assert "w_fast_velocity_0" in default_main_program().vars


def test_minimize_works_on_programs_that_are_not_the_default() -> None:
    main, startup = Program("other"), Program("other_startup")
    with program_guard(main, startup):
        loss = build()
    optimizer.Adam(0.125).minimize(loss, startup)
    assert not default_main_program().vars
    assert not default_startup_program().vars
    executor = Executor()
    executor.run(startup)
    for feed in feeds():
        executor.run(main, feed)
    assert_same(values(), by_torch(lambda p: torch.optim.Adam(list_of(p), 0.125)))


def test_one_optimizer_trains_two_programs() -> None:
    opt = optimizer.SGD(0.25)
    for _ in range(2):
        with program_guard(Program(), Program()), names.guard(), scope_guard(Scope()):
            assert_same(train(opt), by_torch(lambda p: torch.optim.SGD(list_of(p), 0.25)))


def test_backward_and_apply_gradients_are_minimize() -> None:
    loss = build()
    opt = optimizer.Momentum(0.25)
    unused = create_parameter(loss.program, "u", [1], "float32", NumpyArray(np.zeros(1)))
    assert isinstance(unused, Parameter)
    pairs = opt.backward(loss, parameters=["w", "v"])
    opt.apply_gradients([*pairs, (unused, None)])
    executor = Executor()
    executor.run(default_startup_program())
    run(executor, feeds())
    assert_same(values(), by_torch(lambda p: torch.optim.SGD(list_of(p), 0.25, momentum=0.9)))


def test_a_program_for_testing_has_no_update_and_a_copy_has_all() -> None:
    loss = build()
    optimizer.Adam(0.125).minimize(loss)
    executor = Executor()
    executor.run(default_startup_program())
    executor.run(default_main_program().clone(for_test=True), feeds(1)[0], [loss.name])
    np.testing.assert_array_equal(values()["w"], first_values()["w"])
    copy = default_main_program().clone()
    for feed in feeds():
        executor.run(copy, feed, [loss.name])
    assert_same(values(), by_torch(lambda p: torch.optim.Adam(list_of(p), 0.125)))


def test_a_channels_last_weight_in_the_scope_trains_the_same() -> None:
    optimizer.Adam(0.125).minimize(build())
    executor = Executor()
    executor.run(default_startup_program())
    global_scope().put("w", global_scope().get("w").contiguous(memory_format=torch.channels_last))
    run(executor, feeds())
    assert global_scope().get("w").is_contiguous(memory_format=torch.channels_last)
    assert_same(values(), by_torch(lambda p: torch.optim.Adam(list_of(p), 0.125)))


def test_a_state_of_another_shape_is_refused_with_the_update_that_met_it() -> None:
    optimizer.Momentum(0.125).minimize(build())
    executor = Executor()
    executor.run(default_startup_program())
    global_scope().put("v_velocity_0", torch.zeros(2, 36, dtype=torch.float64))
    with pytest.raises(
        ProgramError, match=r"fused_momentum \(.*test_optimizers.*\) failed in optimize.*\[2, 36\]"
    ):
        run(executor, feeds(1))


def test_training_resumes_from_a_saved_state_as_if_it_had_not_stopped() -> None:
    schedule = lr.ExponentialDecay(0.125, 0.5)
    opt = optimizer.Adam(schedule)
    opt.minimize(build())
    executor = Executor()
    executor.run(default_startup_program())

    def go(first: int, steps: int) -> dict[str, Array]:
        for feed in feeds(steps, first):
            executor.run(default_main_program(), feed)
            schedule.step()
        return values()

    state = go(0, 3), opt.state_dict()
    through = go(3, 4)
    for name, value in state[0].items():
        global_scope().var(name).get_tensor().set(value)
    opt.set_state_dict(state[1])
    resumed = go(3, 4)
    assert_same(resumed, through, rtol=0)
    with pytest.raises(ConfigError, match="the state has no 'w_moment1_0'; load one that Adam saved"):
        opt.set_state_dict({})


def test_training_without_startup_says_what_to_run() -> None:
    optimizer.SGD(0.1).minimize(build())
    with pytest.raises(ScopeError, match="run the startup program first"):
        run(Executor(), feeds(1))


# --- what is refused --------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rate as a word": (lambda: optimizer.SGD("fast"), "SGD learning_rate is 'fast'"),  # type: ignore[arg-type]
    "negative rate": (lambda: optimizer.SGD(-0.1), "SGD learning_rate is -0.1"),
    "infinite rate": (lambda: optimizer.Adam(float("inf")), "Adam learning_rate is inf"),
    "no rate": (lambda: fluid.SGD(None), "SGDOptimizer learning_rate is None"),  # type: ignore[arg-type]
    "decay": (lambda: optimizer.SGD(0.1, weight_decay="L2"), "SGD weight_decay is 'L2'"),  # type: ignore[arg-type]
    "negative decay": (lambda: optimizer.SGD(0.1, weight_decay=-1.0), "coeff is -1.0"),
    "clip": (lambda: optimizer.SGD(0.1, grad_clip=1.0), "grad_clip is 1.0; use nn.Clip"),  # type: ignore[arg-type]
    "one name": (lambda: optimizer.SGD(0.1, parameters="w"), "SGD parameters is 'w'; use a list"),
    "groups": (lambda: optimizer.SGD(0.1, parameters=[{"params": []}]), "groups are not"),  # type: ignore[list-item]
    "momentum": (lambda: optimizer.Momentum(0.1, -0.9), "Momentum momentum is -0.9"),
    "beta1": (lambda: optimizer.Adam(0.1, beta1=1.0), "Adam beta1 is 1.0; .* below 1"),
    "beta2": (lambda: optimizer.Lamb(0.1, beta2=-0.1), "Lamb beta2 is -0.1"),
    "epsilon": (lambda: optimizer.AdamW(0.1, epsilon=-1e-8), "AdamW epsilon"),
    "decay of AdamW": (lambda: optimizer.AdamW(0.1, weight_decay=None), "AdamW weight_decay"),  # type: ignore[arg-type]
    "function of AdamW": (lambda: optimizer.AdamW(apply_decay_param_fun="w"), "use a function"),  # type: ignore[arg-type]
    "function of Lamb": (lambda: optimizer.Lamb(exclude_from_weight_decay_fn=["w"]), "use a func"),  # type: ignore[arg-type]
    "rho": (lambda: optimizer.RMSProp(0.1, rho=1.5), "RMSProp rho is 1.5"),
    "start of Adagrad": (
        lambda: optimizer.Adagrad(0.1, initial_accumulator_value=-1),
        "initial_accumulator_value",
    ),
    "coefficient of Lars": (lambda: optimizer.LarsMomentum(lars_coeff=-1), "LarsMomentum lars_coeff is -1"),
    "excluded": (
        lambda: optimizer.LarsMomentum(exclude_from_weight_decay="bn"),
        "use a list of substrings of names",
    ),
    "power of Ftrl": (lambda: optimizer.Ftrl(0.1, lr_power=0.5), "Ftrl lr_power is 0.5"),
}


@pytest.mark.parametrize("pair", REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_argument_is_refused(pair: tuple[Callable[[], Any], str]) -> None:
    with pytest.raises(ConfigError, match=pair[1]):
        pair[0]()


def test_minimize_refuses_what_it_cannot_train() -> None:
    loss = build_small()
    opt = optimizer.SGD(0.1)
    w, v = loss.program.all_parameters()
    with pytest.raises(ConfigError, match="the loss is a float"):
        opt.minimize(1.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="callbacks are not supported"):
        opt.backward(loss, callbacks=[print])
    with pytest.raises(ConfigError, match="no gradient to apply"):
        opt.apply_gradients([])
    with pytest.raises(ConfigError, match="no gradient to apply"):
        opt.apply_gradients([(w, None)])
    with pytest.raises(ConfigError, match="parameter 'v' is listed twice"):
        opt.minimize(loss, parameters=[v, v])
    with pytest.raises(ConfigError, match="parameters is 'w'; use a list"):
        opt.minimize(loss, parameters="w")
    with program_guard(Program(), Program()):
        other = build_small()
    with pytest.raises(ProgramError, match="belongs to"):
        opt.apply_gradients([*optimizer.SGD(0.1).backward(loss), *optimizer.SGD(0.1).backward(other)])


def test_the_base_class_has_no_formula() -> None:
    with pytest.raises(NotImplementedError, match="Optimizer has no _update"):
        Optimizer(0.1).minimize(build_small())


def test_lazy_mode_is_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING, logger.name):
            assert optimizer.Adam(0.1, lazy_mode=True).lazy_mode
    finally:
        logger.removeHandler(caplog.handler)
    assert "every row is updated" in caplog.text
