"""Metrics over all workers: each sums the workers' counts with an all-reduce, then computes the ratio.

An input is a NumPy array or a number, a Variable, or the name of one; the latter two are looked up in the
scope (by default the global one). Every worker must make the same calls in the same order.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.distributed.fleet.base.util_factory import UtilBase
from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.metric.functions import area

__all__ = ["acc", "auc", "mae", "max", "min", "mse", "rmse", "sum"]


def sum(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> NDArray[Any]:
    """The sum over the workers, in the shape of `input`."""
    return _reduced(input, scope, util, "sum")


def max(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> NDArray[Any]:
    """The element-wise maximum over the workers."""
    return _reduced(input, scope, util, "max")


def min(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> NDArray[Any]:
    """The element-wise minimum over the workers."""
    return _reduced(input, scope, util, "min")


def auc(stat_pos: Any, stat_neg: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """The area under the ROC curve from the counts of `static.auc`; 0.5 while a class has no instances."""
    positives, negatives = (_reduced(s, scope, util, "sum").ravel() for s in (stat_pos, stat_neg))
    if positives.shape != negatives.shape:
        raise ConfigError(
            f"auc: stat_pos has {positives.size} bins and stat_neg {negatives.size}; "
            "give the two variables of one static.auc"
        )
    if not positives.sum() or not negatives.sum():
        return 0.5
    return float(area(torch.from_numpy(positives), torch.from_numpy(negatives)))


def mae(abserr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """The mean absolute error: the workers' sums of |error| over their numbers of instances."""
    return _ratio("mae", abserr, total_ins_num, scope, util)


def mse(sqrerr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """The mean squared error: the workers' sums of error² over their numbers of instances."""
    return _ratio("mse", sqrerr, total_ins_num, scope, util)


def rmse(sqrerr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """The root of the mean squared error."""
    return math.sqrt(_ratio("rmse", sqrerr, total_ins_num, scope, util))


def acc(correct: Any, total: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """The fraction of correct instances over all workers."""
    return _ratio("acc", correct, total, scope, util)


def _ratio(name: str, part: Any, whole: Any, scope: Scope | None, util: UtilBase | None) -> float:
    sums = [_reduced(value, scope, util, "sum") for value in (part, whole)]
    if any(value.size != 1 for value in sums):
        raise ConfigError(f"{name}: shapes {[list(v.shape) for v in sums]}; give one number per worker each")
    numerator, denominator = (value.item() for value in sums)
    if denominator == 0:
        raise ConfigError(f"{name} over 0 instances on all workers; call it after at least one batch")
    return float(numerator / denominator)


def _reduced(value: Any, scope: Scope | None, util: UtilBase | None, mode: str) -> NDArray[Any]:
    return (util or UtilBase()).all_reduce(_array(value, scope), mode)


def _array(value: Any, scope: Scope | None) -> NDArray[Any]:
    if isinstance(value, Variable):
        value = value.name
    if isinstance(value, str):
        return (global_scope() if scope is None else scope).get(value).detach().cpu().numpy()
    return np.asarray(value)
