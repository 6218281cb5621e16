"""DistributedOptimizer: the optimizer that `fleet.distributed_optimizer` returns.

the user's optimizer ──▶ lars, lamb, dgc ──▶ amp ──▶ gradient_merge ──▶ recompute ──▶ minimize ──▶ fleet's passes
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import fx

from argosy.distributed.fleet.base.wrapped_optimizer import WrappedOptimizer
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_checks import check_look_ahead
from argosy.distributed.fleet.strategy_optimizer import strategy_optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.optimizer.dgc_momentum import DGCMomentum
from argosy.optimizer.gradient_merge import GradientMergeOptimizer
from argosy.optimizer.look_ahead import LookAhead
from argosy.optimizer.optimizer import Names, Optimizer, ParamsGrads
from argosy.optimizer.recompute import RecomputeOptimizer
from argosy.optimizer.wrapper import OptimizerWrapper
from argosy.static.amp import CustomOpLists, OptimizerWithMixedPrecision, decorate
from argosy.static.io_divided import reject_stale, rows_of_this_rank

Updates = tuple[list[fx.Node], list[tuple[Parameter, Variable]]]
"""The result of `minimize`: the update nodes, and (parameter, gradient) pairs."""
Minimize = Callable[["DistributedOptimizer", Variable, Program | None, Names, Names], Updates]
"""Fleet's part of `minimize`."""


class DistributedOptimizer:
    """Wraps an optimizer: `minimize` also runs the strategy's passes; everything else is the inner optimizer's."""

    def __init__(self, minimize: Minimize, wrapped: WrappedOptimizer, strategy: DistributedStrategy) -> None:
        self._minimize, self.inner, self.strategy = minimize, wrapped.inner, strategy
        self._wrapped, self._given = wrapped, wrapped.inner
        self._with_wrappers: DistributedStrategy | None = None
        """The strategy with the switches of the wrappers, once they are turned on."""
        self._program: Program | None = None
        self._amp: OptimizerWithMixedPrecision | None = None
        self._merge: GradientMergeOptimizer | None = None

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> Updates:
        """Add backward, communication and updates; returns update nodes and (parameter, gradient) pairs."""
        updates = self._minimize(self, loss, startup_program, parameter_list, no_grad_set)
        self._program = loss.program
        return updates

    def decorated(self) -> Optimizer | OptimizerWithMixedPrecision | OptimizerWrapper:
        """The optimizer of the strategy, which adds backward and updates: with `strategy.amp`, in mixed precision, …"""
        if self._program is None and self.strategy is not self._with_wrappers:
            self.strategy = self._with_wrappers = self._wrapped.strategy_for(self.strategy)
        if isinstance(self._given, LookAhead):
            check_look_ahead(self.strategy)
            return self._given
        if self._program is None:
            if isinstance(self._given, DGCMomentum) and not self.strategy.dgc:
                self.strategy = copy.deepcopy(self.strategy)  # it may be frozen
                self.strategy.dgc = True
            self.inner = strategy_optimizer(self._given, self.strategy)
        assert isinstance(self.inner, Optimizer), "checked by distributed_optimizer"
        optimizer: Optimizer | OptimizerWithMixedPrecision | OptimizerWrapper = self.inner
        if self._wrapped.amp is not None:
            optimizer = self._amp = self._wrapped.amp.of(self.inner)
        elif self.strategy.amp:
            configs = dict(self.strategy.amp_configs)
            names = ("custom_white_list", "custom_black_list", "custom_black_varnames")
            lists = [configs.pop(name) for name in names]
            optimizer = self._amp = decorate(self.inner, CustomOpLists(*lists), **configs)
        if (merged := self.strategy.merged_steps()) is not None:
            optimizer = self._merge = GradientMergeOptimizer(optimizer, *merged)
        if self.strategy.recompute:
            configs = dict(self.strategy.recompute_configs)
            optimizer = RecomputeOptimizer(optimizer, configs["memory_budget_MB"])
            optimizer._set_checkpoints(configs["checkpoints"])
        return optimizer

    def reduced(self, params_grads: ParamsGrads) -> ParamsGrads:
        """The (parameter, gradient) pairs whose gradients the ranks sum: merged ones with `gradient_merge`."""
        return params_grads if self._merge is None else self._merge.applied

    def amp_init(
        self, place: Any, scope: Any = None, test_program: Program | None = None, use_fp16_test: bool = False
    ) -> None:
        """See `static.amp`: with `use_fp16_test`, the test program computes in mixed precision, too."""
        self._mixed_precision("amp_init").amp_init(place, scope, test_program, use_fp16_test)

    def get_loss_scaling(self) -> float:
        """The current scale of the loss of a float16 program; 1 without loss scaling."""
        return self._mixed_precision("get_loss_scaling").get_loss_scaling()

    def _mixed_precision(self, call: str) -> OptimizerWithMixedPrecision:
        if self._amp is None:
            raise ConfigError(
                f"{call} needs a program in mixed precision; set strategy.amp = True before minimize"
            )
        return self._amp

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's variables and the scheduler's state; raises if other ranks update some of them."""
        state = (self._merge or self.inner).state_dict()
        if self._program is not None:
            reject_stale("state_dict", self._program, state)
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` of an unsharded optimizer returned; a shard takes its rows of it."""
        program = self._program
        schedulers = {name: value for name, value in state_dict.items() if not hasattr(value, "shape")}
        tensors = {name: value for name, value in state_dict.items() if name not in schedulers}
        if program is not None:
            tensors = rows_of_this_rank(program, tensors)
        (self._merge or self.inner).set_state_dict({**tensors, **schedulers})

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)  # during copy.copy the attribute does not exist yet
        if name in ("backward", "apply_gradients", "apply_optimize"):
            raise ConfigError(
                f"fleet's optimizer has no {name}: alone it would not all-reduce the gradients; use minimize(loss)"
            )
        return getattr(self.inner, name)
