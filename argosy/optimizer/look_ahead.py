"""LookAhead: slow weights that follow the weights of another optimizer every k steps.

    momentum(w, g, …)                        the inner optimizer updates the fast weights
    assign_slow(w_slow, w)                   in the first step
    look_ahead(w, w_slow, 0.5)               every k steps: slow += alpha (fast - slow), fast = slow

As in Paddle, the slow weights start as the fast ones after the first step.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.periods import Period
from argosy.engine.ir.program import program_guard
from argosy.engine.ops.weight_average import assign_slow, look_ahead
from argosy.framework.checks import integer, number
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.framework.period import add_period
from argosy.optimizer.optimizer import ParamsGrads
from argosy.optimizer.wrapper import Minimizer, OptimizerWrapper


class LookAhead(OptimizerWrapper):
    """Lookahead (Zhang et al. 2019) around an optimizer."""

    def __init__(
        self, inner_optimizer: Minimizer, alpha: float = 0.5, k: int = 5, name: str | None = None
    ) -> None:
        super().__init__(inner_optimizer)
        self.alpha = number("LookAhead alpha", alpha, least=0)
        if self.alpha > 1:
            raise ConfigError(f"LookAhead alpha is {alpha!r}; use a number from 0 to 1")
        self.k = integer("LookAhead k", k, least=1)
        self.name = name

    def apply_gradients(self, params_grads: ParamsGrads) -> list[fx.Node]:
        """Add the inner optimizer's updates, and the slow weights; returns the inner optimizer's update nodes."""
        updates = self.inner_optimizer.apply_gradients(params_grads)
        pairs = [(p, g) for p, g in params_grads if g is not None and p.trainable]
        program = pairs[0][0].program
        with program_guard(program):
            period = add_period("_".join(filter(None, (self.name, "lookahead"))), self.k)
            first = Period(f"{period.name}_first", period.step, every=0, begin_step=1)
            program.training = program.training.with_period(first)
            self._variables.append(period.step)
            for parameter, _ in pairs:
                name = names.generate_unused(f"{parameter.name}_slow", program.vars)
                slow = create_state(name, parameter.shape, parameter.dtype, Constant(0.0))
                self._variables.append(name)
                with program.recording("optimize"), torch.no_grad():
                    with program.recorder.in_period(first.name):
                        assign_slow(slow.value, parameter.value)
                    with program.recorder.in_period(period.name):
                        look_ahead(parameter.value, slow.value, self.alpha)
        return updates
