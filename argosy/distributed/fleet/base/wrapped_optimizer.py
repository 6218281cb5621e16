"""Optimizers that a script has wrapped itself, before it gives them to fleet: they are switches of the strategy.

amp.decorate(optimizer)                                strategy.amp
RecomputeOptimizer(optimizer)._set_checkpoints([…])    strategy.recompute
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import dataclass

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import dtype_name
from argosy.optimizer.gradient_merge import GradientMergeOptimizer
from argosy.optimizer.look_ahead import LookAhead
from argosy.optimizer.optimizer import Optimizer
from argosy.optimizer.recompute import RecomputeOptimizer
from argosy.static.amp import OptimizerWithMixedPrecision


@dataclass(frozen=True)
class WrappedOptimizer:
    """An optimizer, and the wrappers that it was given in."""

    inner: Optimizer | LookAhead
    amp: OptimizerWithMixedPrecision | None = None
    recompute: RecomputeOptimizer | None = None

    def strategy_for(self, strategy: DistributedStrategy) -> DistributedStrategy:
        """The strategy with the switches of the wrappers turned on; the same object if there is no wrapper."""
        if self.amp is None and self.recompute is None:
            return strategy
        strategy = copy.deepcopy(strategy)  # it may be frozen
        if self.amp is not None:
            _check_off(strategy, "amp", "amp.decorate")
            strategy.amp = True
            autocast = self.amp._autocast
            strategy.amp_configs = {"dtype": dtype_name(autocast.dtype), "use_pure_fp16": autocast.is_pure}
        if self.recompute is not None:
            _check_off(strategy, "recompute", "RecomputeOptimizer")
            strategy.recompute = True
            strategy.recompute_configs = {
                "checkpoints": list(self.recompute._checkpoints),
                "memory_budget_MB": self.recompute._budget_bytes / 2**20,
            }
        return strategy


def unwrap(optimizer: object) -> WrappedOptimizer:
    """The optimizer inside of its wrappers; raises if it is no optimizer, or in a wrapper that fleet cannot use."""
    recompute = optimizer if isinstance(optimizer, RecomputeOptimizer) else None
    inner: object = optimizer if recompute is None else recompute.inner_optimizer
    amp = inner if isinstance(inner, OptimizerWithMixedPrecision) else None
    inner = inner if amp is None else amp._inner
    if isinstance(inner, Optimizer | LookAhead):
        return WrappedOptimizer(inner, amp, recompute)
    merges = isinstance(inner, GradientMergeOptimizer)
    remedy = "set strategy.gradient_merge" if merges else "give an optimizer, such as optimizer.Momentum(…)"
    raise ConfigError(f"fleet.distributed_optimizer was given a {type(inner).__name__}; {remedy}")


def _check_off(strategy: DistributedStrategy, switch: str, wrapper: str) -> None:
    if getattr(strategy, switch):
        raise ConfigError(
            f"strategy.{switch} is on, and the optimizer is in {wrapper} already; leave one of them out"
        )
