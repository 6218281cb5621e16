"""lr: each schedule against torch's or its formula, resuming from a saved state, and what it rejects.

No Paddle is at hand, so the formulas are those of the documentation of `paddle.optimizer.lr` 2.0.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import SGD
from torch.optim import lr_scheduler as torch_lr

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.optimizer import lr
from argosy.optimizer.lr import LRScheduler

STEPS = 50


def assert_close(rates: list[float], expected: Any) -> None:
    np.testing.assert_allclose(rates, expected, rtol=1e-12, atol=1e-15)


def walk(scheduler: LRScheduler, steps: int = STEPS) -> list[float]:
    """The rates of this and the next steps."""
    rates = []
    for _ in range(steps):
        rates.append(scheduler())
        scheduler.step()
    return rates


def torch_walk(make: Callable[[SGD], torch_lr.LRScheduler], first: float, steps: int = STEPS) -> list[float]:
    """The rates that torch's scheduler gives, from a first rate."""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=first)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


SAME_IN_TORCH: dict[str, tuple[Callable[[], LRScheduler], Callable[[SGD], torch_lr.LRScheduler]]] = {
    "exponential": (lambda: lr.ExponentialDecay(0.5, 0.9), lambda o: torch_lr.ExponentialLR(o, 0.9)),
    "step": (lambda: lr.StepDecay(0.5, 7, 0.3), lambda o: torch_lr.StepLR(o, 7, 0.3)),
    "multi step": (
        lambda: lr.MultiStepDecay(0.5, [3, 8, 30], 0.3),
        lambda o: torch_lr.MultiStepLR(o, [3, 8, 30], 0.3),
    ),
    "cosine": (
        lambda: lr.CosineAnnealingDecay(0.5, 12, 0.01),
        lambda o: torch_lr.CosineAnnealingLR(o, 12, 0.01),
    ),
    "lambda": (
        lambda: lr.LambdaDecay(0.5, lambda t: 1 / (t + 1)),
        lambda o: torch_lr.LambdaLR(o, lambda t: 1 / (t + 1)),
    ),
    "multiplicative": (
        lambda: lr.MultiplicativeDecay(0.5, lambda t: 1 - 0.01 * t),
        lambda o: torch_lr.MultiplicativeLR(o, lambda t: 1 - 0.01 * t),
    ),
    "polynomial": (
        lambda: lr.PolynomialDecay(0.5, 30, end_lr=0.0, power=2.5),
        lambda o: torch_lr.PolynomialLR(o, 30, 2.5),
    ),
    "one cycle": (
        lambda: lr.OneCycleLR(0.5 * 25, 60),
        lambda o: torch_lr.OneCycleLR(o, 0.5 * 25, 60, final_div_factor=0.5 / 0.0001, cycle_momentum=False),
    ),
    "one cycle, three linear phases": (
        lambda: lr.OneCycleLR(2.0, 49, 4, 0.1, 0.37, "linear", True),
        lambda o: torch_lr.OneCycleLR(
            o,
            2.0,
            49,
            pct_start=0.37,
            anneal_strategy="linear",
            three_phase=True,
            div_factor=4,
            final_div_factor=5,
            cycle_momentum=False,
        ),
    ),
    "cyclic": (
        lambda: lr.CyclicLR(0.5, 2.0, 4),
        lambda o: torch_lr.CyclicLR(o, 0.5, 2.0, 4, cycle_momentum=False),
    ),
    "cyclic, triangular2": (
        lambda: lr.CyclicLR(0.5, 2.0, 4, 9, "triangular2"),
        lambda o: torch_lr.CyclicLR(o, 0.5, 2.0, 4, 9, "triangular2", cycle_momentum=False),
    ),
    "cyclic, exp_range": (
        lambda: lr.CyclicLR(0.5, 2.0, 5, 3, "exp_range", 0.9),
        lambda o: torch_lr.CyclicLR(o, 0.5, 2.0, 5, 3, "exp_range", 0.9, cycle_momentum=False),
    ),
    "cyclic, own scale": (
        lambda: lr.CyclicLR(0.5, 2.0, 5, scale_fn=lambda x: 1 / (1 + x), scale_mode="iterations"),
        lambda o: torch_lr.CyclicLR(
            o,
            0.5,
            2.0,
            5,
            scale_fn=lambda x: 1 / (1 + x),
            scale_mode="iterations",
            cycle_momentum=False,
        ),
    ),
}


@pytest.mark.parametrize("name", SAME_IN_TORCH)
def test_equals_torch(name: str) -> None:
    ours, theirs = SAME_IN_TORCH[name]
    first = ours()()
    # One cycle ends with its last step: torch and Paddle both refuse to go beyond.
    steps = 49 if "one cycle" in name else STEPS
    assert_close(walk(ours(), steps), torch_walk(theirs, first, steps))


t = np.arange(STEPS)
FORMULAS: dict[str, tuple[Callable[[], LRScheduler], Any]] = {
    "noam": (
        lambda: lr.NoamDecay(64, 10, 2.0),
        2.0 * 64**-0.5 * np.minimum(np.maximum(t, 1) ** -0.5, t * 10**-1.5),
    ),
    "piecewise": (
        lambda: lr.PiecewiseDecay([5, 20], [1.0, 0.5, 0.1]),
        np.where(t < 5, 1.0, np.where(t < 20, 0.5, 0.1)),
    ),
    "natural exp": (lambda: lr.NaturalExpDecay(0.5, 0.1), 0.5 * np.exp(-0.1 * t)),
    "inverse time": (lambda: lr.InverseTimeDecay(0.5, 0.1), 0.5 / (1 + 0.1 * t)),
    "polynomial": (
        lambda: lr.PolynomialDecay(0.5, 20, 0.01, 2.0),
        (0.5 - 0.01) * (1 - np.minimum(t, 20) / 20) ** 2.0 + 0.01,
    ),
    "polynomial, cycle": (
        lambda: lr.PolynomialDecay(0.5, 20, 0.01, cycle=True),
        (0.5 - 0.01) * (1 - t / (20 * np.maximum(np.ceil(t / 20), 1))) + 0.01,
    ),
    "warmup to a number": (
        lambda: lr.LinearWarmup(0.7, 20, 0.1, 0.5),
        np.where(t < 20, 0.1 + (0.5 - 0.1) * t / 20, 0.7),
    ),
    "warmup to a schedule": (
        lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 12), 20, 0, 0.5),
        np.where(t < 20, 0.5 * t / 20, 0.5 * (1 + np.cos(np.pi * (t - 20) / 12)) / 2),
    ),
    "cosine": (lambda: lr.CosineAnnealingDecay(0.5, 12), 0.5 * (1 + np.cos(np.pi * t / 12)) / 2),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_follows_its_formula(name: str) -> None:
    ours, expected = FORMULAS[name]
    assert_close(walk(ours()), expected)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 3])
def test_plateau_equals_torch(mode: Any, threshold_mode: Any, cooldown: int) -> None:
    """As far as torch goes the same way: it judges the metric of a cooldown step too, Paddle does not."""
    noise = np.random.default_rng(0).normal(size=60)
    metrics = 5 + 0.1 * noise if cooldown == 0 else np.full(60, 5.0)
    ours = lr.ReduceOnPlateau(1.0, mode, 0.5, 4, 1e-2, threshold_mode, cooldown, min_lr=0.05)
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch_lr.ReduceLROnPlateau(optimizer, mode, 0.5, 4, 1e-2, threshold_mode, cooldown, 0.05)
    for metric in metrics:
        ours.step(metric)
        theirs.step(float(metric))
        assert ours() == optimizer.param_groups[0]["lr"]
    assert ours() == 0.05


def test_plateau_sets_the_metric_of_a_cooldown_step_aside() -> None:
    plateau = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0, cooldown=1)
    for metric in (3.0, 3.0, 1.0):
        plateau.step(metric)
    assert (plateau(), plateau.best, plateau.last_epoch) == (0.5, 3.0, 3)


def test_plateau_makes_no_cut_below_epsilon() -> None:
    plateau = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0, epsilon=0.5)
    for _ in range(5):
        plateau.step(1.0)
    assert plateau() == 1.0


@pytest.mark.parametrize(
    "metric", [2, np.float32(2), np.full((1,), 2.0), np.array(2.0), torch.full((1, 1), 2.0)]
)
def test_plateau_takes_one_number_in_any_dress(metric: object) -> None:
    plateau = lr.ReduceOnPlateau(1.0)
    plateau.step(metric, epoch=7)
    assert plateau.state_dict() == {
        "cooldown_counter": 0,
        "best": 2.0,
        "num_bad_epochs": 0,
        "last_epoch": 7,
        "last_lr": 1.0,
    }


def test_plateau_never_calls_a_nan_the_best() -> None:
    plateau = lr.ReduceOnPlateau(1.0, patience=1)
    for metric in (math.nan, 2.0, math.inf, 1.0):
        plateau.step(metric)
    assert (plateau(), plateau.best) == (1.0, 1.0)


def test_plateau_saved_before_its_first_step_resumes_as_new() -> None:
    resumed = lr.ReduceOnPlateau(1.0, patience=0)
    resumed.set_state_dict(json.loads(json.dumps(lr.ReduceOnPlateau(1.0).state_dict())))
    resumed.step(4.0)
    assert (resumed(), resumed.best) == (1.0, 4.0)


rate = st.floats(1e-6, 10)
gamma = st.floats(0.01, 0.99)
size = st.integers(1, 40)


def any_scheduler() -> st.SearchStrategy[Callable[[], LRScheduler]]:
    """A function that makes one and the same scheduler again and again, of any kind and parameters."""

    def maker(kind: Callable[..., LRScheduler], *args: Any) -> Callable[[], LRScheduler]:
        return lambda: kind(*args)

    def build(kind: Callable[..., LRScheduler], *args: st.SearchStrategy[Any]) -> Any:
        return st.tuples(*args).map(lambda drawn: maker(kind, *drawn))

    rising = st.lists(size, min_size=1, max_size=5, unique=True).map(sorted)
    plain = st.one_of(
        build(lr.NoamDecay, size, size, rate),
        rising.flatmap(
            lambda b: build(
                lr.PiecewiseDecay, st.just(b), st.lists(rate, min_size=len(b) + 1, max_size=len(b) + 1)
            )
        ),
        build(lr.NaturalExpDecay, rate, gamma),
        build(lr.InverseTimeDecay, rate, gamma),
        build(lr.PolynomialDecay, rate, size, rate, st.floats(0.1, 4), st.booleans()),
        build(lr.ExponentialDecay, rate, gamma),
        build(lr.MultiStepDecay, rate, rising, gamma),
        build(lr.StepDecay, rate, size, gamma),
        build(lr.LambdaDecay, rate, gamma.map(lambda g: lambda t: g / (t + 1))),
        build(lr.MultiplicativeDecay, rate, gamma.map(lambda g: lambda t: g + 1 / t)),
        build(lr.CosineAnnealingDecay, rate, size, rate),
        build(lr.OneCycleLR, rate, st.integers(100, 200), st.floats(2, 30), rate, st.floats(0.1, 0.4)),
        build(
            lr.CyclicLR, st.just(1e-7), rate, size, size, st.sampled_from(["triangular2", "exp_range"]), gamma
        ),
    )
    warm = st.one_of(rate.map(lambda r: lambda: r), plain)
    return plain | st.builds(
        lambda then, steps, end: lambda: lr.LinearWarmup(then(), steps, 0.0, end), warm, size, rate
    )


def through_json(state: dict[str, Any]) -> Any:
    return json.loads(json.dumps(state, allow_nan=False))


@settings(max_examples=300, deadline=None)
@given(any_scheduler(), st.integers(0, 45))
def test_a_saved_state_resumes_bit_equal(make: Callable[[], LRScheduler], at: int) -> None:
    through, resumed = make(), make()
    walk(through, at)
    resumed.set_state_dict(through_json(through.state_dict()))
    assert resumed.last_epoch == at
    assert walk(resumed, 20) == walk(through, 20)


@settings(max_examples=100, deadline=None)
@given(any_scheduler(), st.integers(0, 60))
def test_a_jump_equals_a_walk(make: Callable[[], LRScheduler], epoch: int) -> None:
    walked, jumped = make(), make()
    walk(walked, epoch)
    jumped.step(epoch)
    assert jumped() == walked()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=20, max_size=40), gamma, size, st.sampled_from(["min", "max"]))
def test_plateau_resumes_bit_equal(metrics: list[float], factor: float, at: int, mode: str) -> None:
    def make() -> lr.ReduceOnPlateau:
        return lr.ReduceOnPlateau(1.0, mode, factor, patience=1, cooldown=2)

    through, resumed = make(), make()
    for metric in metrics[:at]:
        through.step(metric)
    resumed.set_dict(through_json(through.state_dict()))
    for metric in metrics[at:]:
        through.step(metric)
        resumed.step(metric)
        assert resumed.state_dict() == through.state_dict()


def test_last_epoch_starts_in_the_middle() -> None:
    late = lr.CosineAnnealingDecay(0.5, 12, last_epoch=9)
    assert (late.last_epoch, late()) == (10, walk(lr.CosineAnnealingDecay(0.5, 12))[10])


def test_multiplicative_calls_its_function_once_for_a_step() -> None:
    calls: list[int] = []
    walk(lr.MultiplicativeDecay(0.5, lambda t: calls.append(t) or 0.9), 30)  # type: ignore[func-returns-value]
    assert calls == list(range(1, 31))


def test_state_and_rate_are_plain_numbers() -> None:
    half: Any = np.float32(0.5)
    epoch: Any = np.int64(3)
    scheduler = lr.LambdaDecay(half, lambda t: half)
    scheduler.step(epoch)
    assert [type(value) for value in (*scheduler.state_dict().values(), scheduler())] == [int, float, float]


def test_verbose_prints_what_paddle_prints(capsys: pytest.CaptureFixture[str]) -> None:
    lr.StepDecay(0.5, 2, verbose=True).step()
    lr.ReduceOnPlateau(1.0, verbose=True).step(1.0)
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 0: StepDecay set learning rate to 0.5.",
        "Epoch 1: StepDecay set learning rate to 0.5.",
    ]


def test_a_users_own_schedule_saves_its_own_fields() -> None:
    class Own(LRScheduler):
        def __init__(self) -> None:
            self.hits = 0
            super().__init__(0.5)

        def get_lr(self) -> float:
            self.hits += 1
            return self.base_lr / self.hits

        def state_keys(self) -> None:
            self.keys = ["last_epoch", "last_lr", "hits"]

    through, resumed = Own(), Own()
    walk(through, 3)
    resumed.set_state_dict(through_json(through.state_dict()))
    assert walk(resumed, 5) == walk(through, 5)


def test_only_the_user_steps_a_2_0_schedule() -> None:
    assert not lr.StepDecay(0.5, 2).steps_by_itself


def test_base_class_asks_for_get_lr() -> None:
    with pytest.raises(NotImplementedError, match="define it"):
        LRScheduler(0.1)


WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (lr.StepDecay, ("fast", 3), "StepDecay learning_rate is 'fast'; use a finite number of at least 0"),
    (lr.StepDecay, (-1, 3), "StepDecay learning_rate is -1; use"),
    (lr.StepDecay, (True, 3), "StepDecay learning_rate is True; use"),
    (lr.StepDecay, (0.1, 3.5), "StepDecay step_size is 3.5; use an integer of at least 1"),
    (lr.StepDecay, (0.1, 0), "StepDecay step_size is 0; use"),
    (lr.StepDecay, (0.1, 3, 1.0), "StepDecay gamma is 1.0; use a finite number above 0 and below 1"),
    (lr.StepDecay, (0.1, 3, 0.1, -2), "StepDecay last_epoch is -2; use an integer of at least -1"),
    (lr.NoamDecay, (0, 10), "NoamDecay d_model is 0; use a finite number above 0"),
    (lr.NoamDecay, (64, 0), "NoamDecay warmup_steps is 0"),
    (lr.PiecewiseDecay, ([5], [1.0]), "1 values for 1 boundaries; use 2 values"),
    (lr.PiecewiseDecay, (5, [1.0]), "PiecewiseDecay boundaries is 5; use a list of numbers"),
    (lr.PiecewiseDecay, ([5, 2], [1, 2, 3]), "boundaries is [5, 2]; use numbers in order, none below"),
    (lr.PiecewiseDecay, ([5], [1, "x"]), "PiecewiseDecay values[1] is 'x'"),
    (lr.NaturalExpDecay, (0.1, -1), "NaturalExpDecay gamma is -1"),
    (lr.InverseTimeDecay, (0.1, None), "InverseTimeDecay gamma is None"),
    (lr.PolynomialDecay, (0.1, 0), "PolynomialDecay decay_steps is 0"),
    (lr.PolynomialDecay, (0.1, 5, 0.1, 0), "PolynomialDecay power is 0"),
    (lr.LinearWarmup, ("x", 5, 0, 1), "LinearWarmup learning_rate is 'x'"),
    (lr.LinearWarmup, (0.1, 5, 0.5, 0.5), "LinearWarmup end_lr is 0.5; use a finite number above 0.5"),
    (lr.LinearWarmup, (0.1, 0, 0, 1), "LinearWarmup warmup_steps is 0"),
    (lr.LinearWarmup, (lr.ReduceOnPlateau(1.0), 5, 0, 1), "steps by a metric"),
    (lr.ExponentialDecay, (0.1, math.nan), "ExponentialDecay gamma is nan; use"),
    (lr.MultiStepDecay, (0.1, [3, 3]), "milestones is [3, 3]; use numbers in order, each above"),
    (lr.LambdaDecay, (0.1, 0.5), "LambdaDecay lr_lambda is 0.5; use a function"),
    (lr.LambdaDecay, (0.1, lambda t: None), "LambdaDecay lr_lambda(0) is None; use a finite number"),
    (lr.LambdaDecay, (1e300, lambda t: 1e300), "LambdaDecay rate of epoch 0 is inf"),
    (lr.MultiplicativeDecay, (0.1, 0.5), "MultiplicativeDecay lr_lambda is 0.5; use a function"),
    (lr.ReduceOnPlateau, (0.1, "least"), "ReduceOnPlateau mode is 'least'; use one of min, max"),
    (lr.ReduceOnPlateau, (0.1, "min", 1.0), "ReduceOnPlateau factor is 1.0"),
    (lr.ReduceOnPlateau, (0.1, "min", 0.1, 1, 0, "x"), "threshold_mode is 'x'; use one of rel, abs"),
    (lr.CosineAnnealingDecay, (0.1, 2.0), "CosineAnnealingDecay T_max is 2.0"),
    (lr.CosineAnnealingDecay, (0.1, 2, "x"), "CosineAnnealingDecay eta_min is 'x'"),
    (
        lr.OneCycleLR,
        (0.1, 10, 25, 0, 0.1),
        "OneCycleLR phase_pct is 0.1; use a finite number above 0.1 and below 1",
    ),
    (lr.OneCycleLR, (0.1, 10, 25, 0, 0.5, "cos", True), "OneCycleLR phase_pct is 0.5"),
    (lr.OneCycleLR, (0.1, 10, 25, 0, 0.3, "sin"), "anneal_strategy is 'sin'; use one of cos, linear"),
    (lr.CyclicLR, (0.5, 0.1, 3), "CyclicLR max_learning_rate is 0.1; use a finite number of at least 0.5"),
    (lr.CyclicLR, (0.1, 0.5, 3, 3, "round"), "use one of triangular, triangular2, exp_range"),
    (lr.CyclicLR, (0.1, 0.5, 3, 3, "triangular", 1.0, 4), "CyclicLR scale_fn is 4; use a function"),
]


@pytest.mark.parametrize(("kind", "args", "message"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_refuses(kind: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(*args)
    assert message in str(caught.value)


def test_a_step_beyond_the_one_cycle_is_refused_and_changes_nothing() -> None:
    scheduler = lr.OneCycleLR(0.5, 10)
    walk(scheduler, 10)
    before = scheduler.state_dict()
    with pytest.raises(ConfigError, match="step 11 of total_steps=10"):
        scheduler.step()
    assert scheduler.state_dict() == before


@pytest.mark.parametrize("metric", ["low", None, np.zeros(3), torch.zeros(2)])
def test_plateau_refuses_what_is_not_one_number(metric: object) -> None:
    with pytest.raises(ConfigError, match=r"ReduceOnPlateau metrics is .*; use a number"):
        lr.ReduceOnPlateau(1.0).step(metric)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"last_epoch": 3}, "no last_lr .found: last_epoch"),
        ({}, "no last_epoch, last_lr .found: nothing"),
        ({"last_epoch": "3", "last_lr": 0.1}, "last_epoch in the state of StepDecay is '3'"),
        ({"last_epoch": 3, "last_lr": math.nan}, "last_lr in the state of StepDecay is nan"),
    ],
)
def test_refuses_a_state_that_is_not_its_own(state: dict[str, Any], message: str) -> None:
    scheduler = lr.StepDecay(0.5, 2)
    with pytest.raises(ConfigError, match=message):
        scheduler.set_state_dict(state)
    assert scheduler.state_dict() == {"last_epoch": 0, "last_lr": 0.5}


def test_warmup_refuses_a_state_without_the_schedule_that_follows() -> None:
    saved = lr.LinearWarmup(0.5, 3, 0, 1).state_dict()
    with pytest.raises(ConfigError, match="saved with a StepDecay after the warm-up"):
        lr.LinearWarmup(lr.StepDecay(0.5, 3), 3, 0, 1).set_state_dict(saved)


def test_says_what_it_leaves_out_of_a_state(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger.name):
        lr.StepDecay(0.5, 2).set_state_dict({"last_epoch": 3, "last_lr": 0.1, "best": 1.0})
    assert caplog.messages == ["StepDecay ignores best of the loaded state"]
