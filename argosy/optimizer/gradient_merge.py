"""GradientMergeOptimizer: accumulate the gradients of k steps, and apply their mean or sum in the last of them.

    before    g = mm(…)
              …
              momentum(w, g, …)
    after     g = mm(…)
              m = merged(total, g, 0.25)                 every 4 steps
              …
              accumulate([total, …], [g, …])             except every 4 steps
              reset([total, …])                          every 4 steps
              momentum(w, m, …)                          every 4 steps

Everything that the inner optimizer does with a gradient happens to `m`: clipping, weight decay, the search for
overflows, and in a job of several ranks the all-reduce, which overlaps with the backward part of the last step. The
accumulators, w@GRAD@GradientMerge, change after backward only, so that a step that fails before leaves them valid.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor, fx

from argosy.engine.errors import ArgumentTypeError
from argosy.engine.ir import names
from argosy.engine.ir.backward import record_seeds
from argosy.engine.ir.periods import Period
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.merge_gradients import accumulate, merged, reset
from argosy.framework.checks import integer
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.framework.period import add_period
from argosy.optimizer.optimizer import ParamsGrads
from argosy.optimizer.wrapper import Minimizer, OptimizerWrapper


class GradientMergeOptimizer(OptimizerWrapper):
    """Updates every `k_steps` runs with the mean (`avg`) or the sum of their gradients."""

    def __init__(self, inner_optimizer: Minimizer, k_steps: int = 1, avg: bool = True) -> None:
        super().__init__(inner_optimizer)
        self.k_steps = integer("GradientMergeOptimizer k_steps", k_steps, least=1)
        if not isinstance(avg, bool):
            raise ArgumentTypeError(
                f"GradientMergeOptimizer avg is {avg!r}; use True for the mean, False for the sum"
            )
        self.avg = avg
        self.applied: ParamsGrads = []
        """The (parameter, merged gradient) pairs of the last `apply_gradients`: what the ranks all-reduce."""

    def apply_gradients(self, params_grads: ParamsGrads) -> list[fx.Node]:
        """Add accumulators, and the updates of the merged gradients; returns the update nodes."""
        pairs = [(p, g) for p, g in params_grads if g is not None and p.trainable]
        if self.k_steps == 1 or not pairs:
            self.applied = pairs
            return self.inner_optimizer.apply_gradients(pairs)
        program = pairs[0][0].program
        with program_guard(program):
            period = add_period("gradient_merge", self.k_steps)
            totals = [self._total(gradient) for _, gradient in pairs]
        self._variables.append(period.step)
        both = zip(pairs, totals, strict=True)
        self.applied = [(p, self._merged(period, gradient, total)) for (p, gradient), total in both]
        recorder = program.recorder
        with program.recording("optimize"), torch.no_grad():
            with recorder.in_period(period.name, unless=True):
                accumulate(totals, [gradient.value for _, gradient in pairs])
            with recorder.in_period(period.name):
                reset(totals)
        with recorder.in_period(period.name):
            return self.inner_optimizer.apply_gradients(self.applied)

    def _total(self, gradient: Variable) -> Tensor:
        """A new accumulator for a gradient."""
        program = gradient.program
        name = _unused(f"{gradient.name}@GradientMerge", program)  # Paddle's name
        total = create_state(name, gradient.shape, "float32", Constant(0.0)).value
        program.recorder.placeholder_of[total].meta["rank_local"] = True  # it has the gradients of this rank
        self._variables.append(name)
        return total

    def _merged(self, period: Period, gradient: Variable, total: Tensor) -> Variable:
        """The variable with the merged gradient; its node comes directly after the gradient's."""
        program = gradient.program
        scale = 1.0 / self.k_steps if self.avg else 1.0
        with program.recording("backward"), torch.no_grad(), program.recorder.in_period(period.name):
            value = merged(total, gradient.value, scale)
        if gradient.node.op == "call_function":
            gradient.node.append(program.recorder.node(value))
        variable = program.add(Variable(program, _unused(f"{gradient.name}@MERGED", program), value))
        record_seeds(variable)
        return variable


def _unused(name: str, program: Program) -> str:
    return name if name not in program.vars else names.generate_unused(name, program.vars)
