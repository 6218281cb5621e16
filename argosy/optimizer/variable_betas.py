"""Adam whose beta1 or beta2 is a Variable, which the program may change: recorded as torch operators.

    m1 = b1 · m1 + (1 - b1) · g            p1 = p1 · b1, the product of all beta1 so far, as in Paddle
    m2 = b2 · m2 + (1 - b2) · g²           p2 = p2 · b2
    p -= lr · sqrt(1 - p2) / (1 - p1) · m1 / (sqrt(m2) + eps · sqrt(1 - p2))

With numbers it is one op with an exact step count (engine/optimizers/adam.py).
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.errors import UnsupportedError
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.optimizers.spec import Slot

SLOTS = (
    Slot("moment1"),
    Slot("moment2"),
    Slot("beta1_pow_acc", value=1.0, is_count=True),
    Slot("beta2_pow_acc", value=1.0, is_count=True),
)


def check(what: str, betas: Sequence[Variable | float], multi_precision: bool) -> None:
    """Raise UnsupportedError for what the formula does not support."""
    for beta in betas:
        if isinstance(beta, Variable) and beta.value.numel() != 1:
            raise UnsupportedError(
                f"{what}: {beta!r} as beta is not supported; use a Variable with one number"
            )
    if multi_precision:
        raise UnsupportedError(
            f"{what}: multi_precision with a Variable as beta is not supported; use a number"
        )


def update(
    parameter: Parameter,
    grad: Tensor,
    states: Sequence[Tensor],
    rate: Tensor,
    betas: Sequence[Variable | float],
    epsilon: float,
) -> None:
    """Record one step of a parameter."""
    m1, m2, p1, p2 = states
    b1, b2 = (_value(parameter, beta) for beta in betas)
    p1.mul_(b1)
    p2.mul_(b2)
    m1.mul_(b1).add_(grad * (1 - b1))
    m2.mul_(b2).add_(grad * grad * (1 - b2))
    root = torch.sqrt(1 - p2)
    step = rate * parameter.learning_rate * root / (1 - p1)
    parameter.value.sub_(step * m1 / (m2.sqrt() + epsilon * root))


def _value(parameter: Parameter, beta: Variable | float) -> Tensor | float:
    if not isinstance(beta, Variable):
        return beta
    return parameter.program.check_owner(beta).value.reshape(1)
