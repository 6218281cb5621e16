"""Recompute activations in backward instead of storing them.

optimizer = RecomputeOptimizer(optimizer)
optimizer._set_checkpoints([hidden_1, hidden_2])           names or Variables to store, or "auto"
optimizer.minimize(loss)

The program itself is unchanged: its checkpoints are marked, and engine/passes/recompute.py rewrites the copy that is
compiled.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from argosy.engine.errors import ConfigError, nearest
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.recompute import CHECKPOINT, Recompute
from argosy.framework.checks import number
from argosy.framework.strategy_settings import KINDS, Field
from argosy.optimizer.optimizer import Names, ParamsGrads
from argosy.optimizer.wrapper import Minimizer, OptimizerWrapper

AUTO = "auto"
_FIELD = Field("checkpoints", "list of names", ())


class RecomputeOptimizer(OptimizerWrapper):
    """An optimizer whose `minimize` makes a program recompute activations; everything else is the inner optimizer's."""

    accepts_wrappers = True

    def __init__(self, optimizer: Minimizer, memory_budget_mb: float = 0) -> None:
        """`optimizer`: an optimizer, or a wrapper such as `amp.decorate` returns. The budget is for "auto"."""
        super().__init__(optimizer)
        self._checkpoints: tuple[str, ...] = ()
        self._budget_bytes = int(2**20 * number("memory_budget_mb", memory_budget_mb, least=0))

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str] | str) -> None:
        """The activations to store: Variables or their names, or "auto"."""
        self._checkpoints = KINDS[_FIELD.kind]("checkpoints", checkpoints, _FIELD)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """Add the gradients of the loss, and mark the checkpoints."""
        self._mark(loss)
        return super().backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: ParamsGrads) -> list[fx.Node]:
        """Add the updates of the inner optimizer."""
        return self.inner_optimizer.apply_gradients(params_grads)

    def _mark(self, loss: Variable) -> None:
        if not self._checkpoints:
            raise ConfigError('recompute has no checkpoints; call _set_checkpoints([…]), or use "auto"')
        program, is_auto = loss.program, self._checkpoints == (AUTO,)
        if self._budget_bytes and not is_auto:
            raise ConfigError('recompute: a memory budget needs checkpoints="auto"; leave one of them out')
        if program.build.compiler:
            raise ConfigError(
                f"build_strategy.compiler={program.build.compiler!r} and recompute are both on; Inductor merges equal "
                "computations of forward and backward, which undoes recompute: turn one of them off"
            )
        for node in [] if is_auto else _nodes(loss, self._checkpoints):
            node.meta[CHECKPOINT] = True
        program.build = replace(program.build, recompute=Recompute(is_auto, self._budget_bytes))
        program.touch()


def _nodes(loss: Variable, names: Sequence[str]) -> list[fx.Node]:
    """The nodes of the checkpoints; raises if one does not exist, or is no activation of this loss."""
    program = loss.program
    needed = {loss.node}
    for node in reversed(program.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    node_of = {
        name: v.node for name, v in program.vars.items() if v.node.op == "call_function" and v.node in needed
    }
    for name in names:
        if name not in program.vars:
            raise ConfigError(f"recompute: {program.name} has no checkpoint {name!r}{nearest(name, node_of)}")
        if name not in node_of:
            raise ConfigError(
                f"recompute: {name!r} cannot be a checkpoint: it is no activation that {loss.name!r} is computed from "
                "(feeds and parameters are stored anyway)"
            )
    return [node_of[name] for name in names]
