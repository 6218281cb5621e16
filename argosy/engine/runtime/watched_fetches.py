"""Fetches whose values are logged as metrics whenever a run fetches them: `argosy.metrics.watch`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from argosy.engine.ir.variable import Variable
from argosy.engine.metrics.metrics_recorder import recorder

watched: dict[str, tuple[str, str]] = {}
"""By the name of the variable: the name of the metric, and how it is reduced over the ranks."""


def log(variables: Sequence[Variable], fetched: Sequence[Any]) -> None:
    """Log the watched ones of these fetches: the mean of the elements of each."""
    if not watched:
        return
    values: dict[str, float] = {}
    reduce: dict[str, str] = {}
    for variable, value in zip(variables, fetched, strict=True):
        if variable.name in watched and isinstance(value, np.ndarray | torch.Tensor):
            name, reduce_by = watched[variable.name]
            values[name], reduce[name] = mean(value), reduce_by
    if values:
        recorder().log_watched(values, reduce)


def mean(value: np.ndarray[Any, Any] | torch.Tensor) -> float:
    """The mean of all elements; that of one element is the element."""
    return float(
        value.double().mean() if isinstance(value, torch.Tensor) else np.mean(value, dtype=np.float64)
    )
