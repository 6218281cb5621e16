"""strategy.lars, lamb and dgc: which optimizer takes the place of the given one, and what is rejected."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_checks import check_collective
from argosy.distributed.fleet.strategy_optimizer import strategy_optimizer
from argosy.engine.errors import ConfigError
from argosy.framework.layer import ParamAttr
from argosy.optimizer import Adam, AdamW, Lamb, LarsMomentum, Momentum
from argosy.optimizer.dgc_momentum import DGCMomentum

Array = np.ndarray[Any, Any]


def strategy(**given: Any) -> fleet.DistributedStrategy:
    options = fleet.DistributedStrategy()
    for name, value in given.items():
        setattr(options, name, value)
    return options


def norm(x: Array) -> float:
    return float(np.sqrt((x * x).sum()))


def lars_step(w: Array, g: Array, state: dict[str, Any], decay: float) -> Array:
    """You et al. 2017, with momentum 0.8, rate 0.5, coefficient 0.1 and epsilon 1e-3."""
    trust = 0.1 * norm(w) / (norm(g) + decay * norm(w) + 1e-3) if decay else 1.0
    state["v"] = 0.8 * state.get("v", 0.0) + 0.5 * trust * (g + decay * w)
    return w - state["v"]


def lamb_step(w: Array, g: Array, state: dict[str, Any], decay: float) -> Array:
    """You et al. 2020, with rate 0.5, betas 0.8 and 0.9, and epsilon 1e-3."""
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = 0.8 * state.get("m", 0.0) + 0.2 * g
    n = state["n"] = 0.9 * state.get("n", 0.0) + 0.1 * g * g
    u = m / (1 - 0.8**t) / (np.sqrt(n / (1 - 0.9**t)) + 1e-3) + decay * w
    return w - 0.5 * norm(w) / norm(u) * u


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], Callable[..., Array]]] = {
    "lars": (
        lambda: Momentum(0.5, 0.8),
        {
            "lars_coeff": 0.1,
            "lars_weight_decay": 0.1,
            "epsilon": 1e-3,
            "exclude_from_weight_decay": ["_norm"],
        },
        lars_step,
    ),
    "lamb": (
        lambda: fluid.optimizer.Adam(0.5, 0.8, 0.9, 1e-3),
        {"lamb_weight_decay": 0.1, "exclude_from_weight_decay": ["_norm_w"]},
        lamb_step,
    ),
}


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("switch", CASES)
def test_three_steps_are_those_of_the_paper(switch: str, fuses: bool) -> None:
    make, configs, step = CASES[switch]
    options = strategy(**{switch: True, f"{switch}_configs": configs})
    options.build_strategy.fuse_all_optimizer_ops = fuses
    fleet.init(is_collective=True, strategy=options)
    x = paddle.static.data("x", [5, 3], "float32")
    names = ("first_w", "layer_norm_w")
    wide, deep = (ParamAttr(name=name) for name in names)
    hidden = paddle.static.nn.fc(x, 4, weight_attr=wide, bias_attr=False)
    loss = (paddle.static.nn.fc(hidden, 2, weight_attr=deep, bias_attr=False) ** 2).sum()
    fleet.distributed_optimizer(make(), options).minimize(loss)
    exe, scope = paddle.static.Executor(), paddle.static.global_scope()
    exe.run(paddle.static.default_startup_program())
    a, b = (scope.get(name).numpy().astype("float64") for name in names)
    states: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for seed in range(3):
        fed = np.random.default_rng(seed).standard_normal((5, 3)).astype("float32")
        exe.run(feed={"x": fed}, fetch_list=[loss])
        out = 2 * fed @ a @ b  # the gradient of the loss with respect to the output
        grads = fed.T @ out @ b.T, (fed @ a).T @ out
        a, b = step(a, grads[0], states[0], 0.1), step(b, grads[1], states[1], 0.0)
        for name, value in zip(names, (a, b), strict=True):
            np.testing.assert_allclose(scope.get(name).numpy(), value, rtol=2e-4, atol=1e-5, err_msg=name)


def test_what_the_optimizer_was_given_is_carried_over() -> None:
    rate, clip = paddle.optimizer.lr.StepDecay(0.1, 2), paddle.nn.ClipGradByNorm(2.0)
    given = {"parameters": ["w"], "weight_decay": 0.01, "grad_clip": clip, "name": "mine"}
    pairs: list[tuple[Any, str, type]] = [
        (Momentum(rate, 0.7, **given), "lars", LarsMomentum),
        (Momentum(rate, 0.7, **given), "dgc", DGCMomentum),
        (Adam(rate, 0.7, 0.8, 1e-5, **given), "lamb", Lamb),
    ]
    for inner, switch, kind in pairs:
        replaced = strategy_optimizer(inner, strategy(**{switch: True}))
        assert type(replaced) is kind
        assert (replaced.learning_rate, replaced.parameters, replaced.grad_clip) == (rate, ["w"], clip)
        assert (replaced.name, replaced.regularization) == ("mine", inner.regularization)
        for setting in inner.spec.settings:
            assert getattr(replaced, setting.name, False) == getattr(inner, setting.name)


@pytest.mark.parametrize(
    ("make", "switch", "message"),
    [
        (lambda: Adam(0.1), "lars", "strategy.lars needs the inner optimizer to be Momentum, but it is Adam"),
        (lambda: LarsMomentum(0.1), "lars", "strategy.lars needs .* to be Momentum, but it is LarsMomentum"),
        (lambda: AdamW(0.1), "lamb", "strategy.lamb needs the inner optimizer to be Adam, but it is AdamW"),
        (lambda: Adam(0.1), "dgc", "strategy.dgc needs the inner optimizer to be Momentum, but it is Adam"),
        (lambda: Momentum(0.1, use_nesterov=True), "lars", "LARS has no Nesterov momentum"),
        (lambda: Momentum(0.1, multi_precision=True), "dgc", "multi_precision=True.* are both on"),
        (
            lambda: Momentum(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)),
            "dgc",
            "grad_clip is a ClipGradByGlobalNorm, .* use nn.ClipGradByNorm",
        ),
    ],
)
def test_another_optimizer_is_rejected(make: Callable[[], Any], switch: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        strategy_optimizer(make(), strategy(**{switch: True}))


def test_dgc_excludes_what_it_cannot_be_combined_with() -> None:
    for other in ("amp", "fp16_allreduce", "lars", "lamb"):
        with pytest.raises(ConfigError, match=rf"strategy.{other} and strategy.dgc are both on"):
            check_collective(strategy(dgc=True, **{other: True}), num_ranks=2, num_hosts=1)
    with pytest.raises(
        ConfigError, match=r"strategy.dgc and strategy.use_hierarchical_allreduce are both on"
    ):
        check_collective(strategy(dgc=True, use_hierarchical_allreduce=True), num_ranks=4, num_hosts=2)
    options = strategy(dgc=True)
    options.build_strategy.reduce_strategy = paddle.static.BuildStrategy.ReduceStrategy.Reduce
    with pytest.raises(ConfigError, match=r"strategy.dgc and .*Reduce are both on"):
        check_collective(options, num_ranks=2, num_hosts=1)


def test_a_sparsity_of_one_is_rejected_when_it_is_assigned() -> None:
    with pytest.raises(
        ConfigError, match=r"dgc_configs\['sparsity'\]\[1\] is 1.0; use a finite number .*below 1"
    ):
        strategy(dgc_configs={"sparsity": [0.75, 1.0]})
    with pytest.raises(ConfigError, match=r"DGCMomentumOptimizer sparsity\[0\] is 1.5"):
        fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, sparsity=[1.5])


def test_dgc_on_one_rank_is_momentum() -> None:
    fleet.init(is_collective=True)
    loss = paddle.static.nn.fc(paddle.static.data("x", [2, 256], "float32"), 256).mean()
    fleet.distributed_optimizer(Momentum(0.1, 0.9), strategy(dgc=True)).minimize(loss)
    printed = str(paddle.static.default_main_program())
    assert "momentum(fc_0.w_0" in printed
    assert "dgc" not in printed
