"""Counters of runs, from which 1.x scripts compute learning rates; the schedules are in optimizer/fluid_decay.py."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.optimizer.fluid_decay import (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    noam_decay,
    piecewise_decay,
    polynomial_decay,
)
from argosy.tensor import cast

__all__ = [
    "autoincreased_step_counter",
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """An int64 variable that is `begin` in the first run, and `step` more in each run after it."""
    name, program = counter_name or "@STEP_COUNTER@", default_main_program()
    is_new = name not in program.vars
    counter = create_state(name, [1], "int64", Constant(begin - step))
    if is_new:
        with program.recording(), torch.no_grad():
            counter.value.add_(step)
        counter.node.meta["train_only"] = True  # a program for testing counts no runs
        counter.stop_gradient = True
    return counter


def _decay_step_counter(begin: int = 0) -> Any:
    """The number of runs before this one, plus `begin`, as a float32 variable of shape [1]."""
    return cast(autoincreased_step_counter("@LR_DECAY_COUNTER@", begin, 1), "float32")
