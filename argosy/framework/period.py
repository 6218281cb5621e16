"""add_period: a new period of a program, with its step counter."""

# SPDX-License-Identifier: Apache-2.0
from itertools import count

import torch

from argosy.engine.ir.periods import Period
from argosy.engine.ir.program import default_main_program
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state


def add_period(name: str, every: int, begin_step: int = 0) -> Period:
    """Add a period to the default main program: due in every step up to `begin_step`, then every `every` steps.

    Its counter `name`_step counts the runs of the program that update something. Nodes are in the period if they are
    recorded under `program.recorder.in_period(period.name)`, or if a pass gives them the meta
    `periods.in_period(period.name)`.
    """
    program = default_main_program()
    used = [period.name for period in program.training.periods]
    name = next(n for i in count() if (n := f"{name}_{i}" if i else name) not in used)
    counter = create_state(f"{name}_step", [1], "int64", Constant(0))
    with program.recording("optimize"), torch.no_grad():
        counter.value.add_(1)
    period = Period(name, counter.name, every, begin_step)
    program.training = program.training.with_period(period)
    return period
