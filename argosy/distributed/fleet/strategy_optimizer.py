"""The optimizer of a strategy: `lars`, `lamb` and `dgc` replace the user's optimizer by another one.

    strategy.lars    Momentum -> LarsMomentum        strategy.lamb    Adam -> Lamb
    strategy.dgc     Momentum -> DGCMomentum

Learning rate, schedule, parameters, weight decay and clipping are those of the user's optimizer. Paddle ignores these
switches with any other optimizer; here they raise.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import TypeVar

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter
from argosy.optimizer.algorithms import Adam, Lamb, LarsMomentum, Momentum
from argosy.optimizer.dgc_momentum import DGCMomentum
from argosy.optimizer.optimizer import Optimizer

T = TypeVar("T", Momentum, Adam)


def strategy_optimizer(optimizer: Optimizer, strategy: DistributedStrategy) -> Optimizer:
    """The optimizer that minimizes: the given one, or the one that a switch of the strategy asks for."""
    if strategy.lars:
        return _lars(_expected(optimizer, Momentum, "momentum", "lars"), strategy)
    if strategy.lamb:
        return _lamb(_expected(optimizer, Adam, "adam", "lamb"), strategy)
    if strategy.dgc and not isinstance(optimizer, DGCMomentum):
        return _dgc(_expected(optimizer, Momentum, "momentum", "dgc"), strategy)
    if strategy.dgc and strategy.is_changed("dgc_configs"):
        raise ConfigError(
            f"strategy.dgc_configs is set, but {type(optimizer).__name__} has settings of its own; set one of them"
        )
    return optimizer


def _expected(optimizer: Optimizer, kind: type[T], op: str, switch: str) -> T:
    """The optimizer, if the switch can replace it."""
    name = type(optimizer).__name__
    # AdamW is an Adam, and DGCMomentum a Momentum
    if not isinstance(optimizer, kind) or optimizer.spec.name != op or isinstance(optimizer, DGCMomentum):
        raise ConfigError(
            f"strategy.{switch} needs the inner optimizer to be {kind.__name__}, but it is {name}; use "
            f"{kind.__name__}, or turn strategy.{switch} off"
        )
    if optimizer.multi_precision:
        raise ConfigError(
            f"strategy.{switch} and {name}(multi_precision=True) are both on; the optimizer of {switch} has no master "
            "weights: turn one of them off"
        )
    return optimizer


def _lars(optimizer: Momentum, strategy: DistributedStrategy) -> LarsMomentum:
    if optimizer.use_nesterov:  # type: ignore[attr-defined]  # a setting of the spec
        raise ConfigError(
            "strategy.lars and Momentum(use_nesterov=True) are both on; LARS has no Nesterov momentum: turn one off"
        )
    return LarsMomentum(
        optimizer.learning_rate,
        optimizer.momentum,  # type: ignore[attr-defined]
        parameters=optimizer.parameters,
        weight_decay=optimizer.regularization,
        grad_clip=optimizer.grad_clip,
        name=optimizer.name,
        **strategy.lars_configs,
    )


def _lamb(optimizer: Adam, strategy: DistributedStrategy) -> Lamb:
    configs = strategy.lamb_configs
    excluded = tuple(configs["exclude_from_weight_decay"])

    def is_excluded(parameter: Parameter) -> bool:
        return parameter.name.endswith(excluded)  # the end of the name, as in Paddle; lars: any part of it

    lamb = Lamb(
        optimizer.learning_rate,
        configs["lamb_weight_decay"],
        optimizer.beta1,  # type: ignore[attr-defined]
        optimizer.beta2,  # type: ignore[attr-defined]
        optimizer.epsilon,  # type: ignore[attr-defined]
        optimizer.parameters,
        optimizer.grad_clip,
        is_excluded,
        optimizer.name,
    )
    lamb.regularization = optimizer.regularization
    return lamb


def _dgc(optimizer: Momentum, strategy: DistributedStrategy) -> DGCMomentum:
    configs = strategy.dgc_configs
    return DGCMomentum(
        optimizer.learning_rate,
        optimizer.momentum,  # type: ignore[attr-defined]
        configs["rampup_begin_step"],
        configs["rampup_step"],
        configs["sparsity"] or [0.999],
        optimizer.parameters,
        optimizer.use_nesterov,  # type: ignore[attr-defined]
        weight_decay=optimizer.regularization,
        grad_clip=optimizer.grad_clip,
        name=optimizer.name,
    )
