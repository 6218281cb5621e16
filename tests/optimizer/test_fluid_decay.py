"""fluid_decay: the 1.x schedules against their formulas, run by run, and resuming from a saved state."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from argosy.engine.errors import ConfigError
from argosy.optimizer import fluid_decay as fd
from argosy.optimizer.lr import LRScheduler, StepDecay

RUNS = 50
n = np.arange(RUNS)


def walk(scheduler: LRScheduler, runs: int = RUNS) -> list[float]:
    """The rates of the next runs of a program, as the Executor asks for them."""
    rates = []
    for _ in range(runs):
        rates.append(scheduler())
        scheduler.step()
    return rates


poly = (0.5 - 0.01) * (1 - np.minimum(n, 20) / 20) ** 2.0 + 0.01
noam = 2.0 * 64**-0.5 * np.minimum((n + 1) ** -0.5, (n + 1) * 10**-1.5)

FORMULAS: dict[str, tuple[Callable[[], LRScheduler], Any]] = {
    "exponential": (lambda: fd.exponential_decay(0.5, 7, 0.9), 0.5 * 0.9 ** (n / 7)),
    "exponential, stairs": (lambda: fd.exponential_decay(0.5, 7, 0.9, True), 0.5 * 0.9 ** (n // 7)),
    "natural exp": (lambda: fd.natural_exp_decay(0.5, 7, 0.9), 0.5 * np.exp(-0.9 * n / 7)),
    "natural exp, stairs": (lambda: fd.natural_exp_decay(0.5, 7, 0.9, True), 0.5 * np.exp(-0.9 * (n // 7))),
    "inverse time": (lambda: fd.inverse_time_decay(0.5, 7, 0.9), 0.5 / (1 + 0.9 * n / 7)),
    "inverse time, stairs": (lambda: fd.inverse_time_decay(0.5, 7, 0.9, True), 0.5 / (1 + 0.9 * (n // 7))),
    "polynomial": (lambda: fd.polynomial_decay(0.5, 20, 0.01, 2.0), poly),
    "polynomial, cycle": (
        lambda: fd.polynomial_decay(0.5, 20, 0.01, cycle=True),
        (0.5 - 0.01) * (1 - n / (20 * np.maximum(np.ceil(n / 20), 1))) + 0.01,
    ),
    "piecewise": (
        lambda: fd.piecewise_decay([5, 20], [1.0, 0.5, 0.1]),
        np.where(n < 5, 1.0, np.where(n < 20, 0.5, 0.1)),
    ),
    "noam": (lambda: fd.noam_decay(64, 10, 2.0), noam),
    "cosine": (lambda: fd.cosine_decay(0.5, 7, 5), 0.5 * 0.5 * (np.cos((n // 7) * np.pi / 5) + 1)),
    "warmup to a number": (
        lambda: fd.linear_lr_warmup(0.7, 10, 0.3, 0.1),
        np.where(n < 10, 0.3 + (0.1 - 0.3) * n / 10, 0.7),
    ),
    "warmup to a schedule, which has been counting all along": (
        lambda: fd.linear_lr_warmup(fd.polynomial_decay(0.5, 20, 0.01, 2.0), 10, 0.0, 0.5),
        np.where(n < 10, 0.5 * n / 10, poly),
    ),
    "warmup to noam, whose count begins at 1": (
        lambda: fd.linear_lr_warmup(fd.noam_decay(64, 10, 2.0), 10, 0.0, 0.5),
        np.where(n + 1 < 10, 0.5 * (n + 1) / 10, noam),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_follows_its_formula(name: str) -> None:
    make, expected = FORMULAS[name]
    np.testing.assert_allclose(walk(make()), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("at", [0, 4, 25])
def test_a_saved_state_resumes_bit_equal(name: str, at: int) -> None:
    make, _ = FORMULAS[name]
    through, resumed = make(), make()
    walk(through, at)
    resumed.set_state_dict(json.loads(json.dumps(through.state_dict())))
    assert walk(resumed) == walk(through)


@pytest.mark.parametrize("name", FORMULAS)
def test_is_stepped_by_the_executor(name: str) -> None:
    assert FORMULAS[name][0]().steps_by_itself


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fd.exponential_decay("x", 7, 0.9), "exponential_decay learning_rate is 'x'; use"),  # type: ignore[arg-type]  # the point
        (lambda: fd.exponential_decay(0.5, 0, 0.9), "exponential_decay decay_steps is 0; use"),
        (lambda: fd.exponential_decay(0.5, 7, 0), "exponential_decay decay_rate is 0; use"),
        (lambda: fd.natural_exp_decay(0.5, 7, -1), "natural_exp_decay decay_rate is -1; use"),
        (lambda: fd.inverse_time_decay(0.5, 7, -1), "inverse_time_decay decay_rate is -1; use"),
        (lambda: fd.cosine_decay(0.5, 0, 5), "cosine_decay step_each_epoch is 0; use"),
        (lambda: fd.cosine_decay(0.5, 7, 0), "cosine_decay epochs is 0; use"),
        (lambda: fd.polynomial_decay(0.5, 0), "decay_steps is 0; use"),
        (lambda: fd.piecewise_decay([5], [1.0]), "1 values for 1 boundaries; use 2"),
        (lambda: fd.noam_decay(0, 10), "d_model is 0; use"),
        (lambda: fd.linear_lr_warmup(0.5, 0, 0, 1), "linear_lr_warmup warmup_steps is 0; use"),
        (lambda: fd.linear_lr_warmup("x", 5, 0, 1), "linear_lr_warmup learning_rate is 'x'; use"),  # type: ignore[arg-type]  # the point
        (
            lambda: fd.linear_lr_warmup(StepDecay(0.5, 3), 5, 0, 1),
            "is a StepDecay, which the user steps; use",
        ),
    ],
)
def test_refuses(make: Callable[[], LRScheduler], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)
