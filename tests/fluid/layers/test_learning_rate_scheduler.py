"""Counters of runs, and a rate that the program computes from one."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers, optimizer


def test_a_counter_counts_runs_from_its_begin() -> None:
    counter = layers.autoincreased_step_counter(counter_name="steps", begin=5, step=2)
    assert layers.autoincreased_step_counter(counter_name="steps", begin=5, step=2) is counter
    decay = layers.learning_rate_scheduler._decay_step_counter()
    exe = Executor()
    exe.run(default_startup_program())
    runs = [exe.run(fetch_list=[counter, decay]) for _ in range(3)]
    assert [(int(a), float(b)) for a, b in runs] == [(5, 0.0), (7, 1.0), (9, 2.0)]


def test_the_rate_of_an_optimizer_may_be_computed_by_the_program() -> None:
    x = layers.data("x", [2])
    loss = layers.mean(layers.fc(x, 1, bias_attr=False))
    rate = 1.0 / (layers.learning_rate_scheduler._decay_step_counter(1) * 2.0)
    sgd = optimizer.SGD(learning_rate=rate)
    sgd.minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    before = global_scope().get("fc_0.w_0").clone()
    for _ in range(3):
        exe.run(feed={"x": np.ones((4, 2), "float32")})
    moved = before - global_scope().get("fc_0.w_0")
    np.testing.assert_allclose(moved, np.full((2, 1), 1 / 2 + 1 / 4 + 1 / 6), rtol=1e-5)
    for changed in (sgd.get_lr, lambda: sgd.set_lr(0.1)):
        with pytest.raises(ConfigError, match="rate"):
            changed()
    with pytest.raises(ConfigError, match="one floating-point number"):
        optimizer.SGD(learning_rate=x)
