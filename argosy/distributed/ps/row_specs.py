"""Translate the user's optimizer and initializer to row optimizers and row initializers of a server table."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from argosy.framework import initializer as initial
from argosy.optimizer.algorithms import ALGORITHMS
from argosy.optimizer.optimizer import Optimizer
from argosy.optimizer.spec_optimizer import SpecOptimizer
from argosy.regularizer import L2Decay, to_regularizer


def table_of(
    parameter: Parameter,
    optimizer: Optimizer,
    initializer: Any,
    seed: int,
    memory_rows: int,
) -> TableSpec:
    """The specification of the server table for a parameter."""
    return TableSpec(
        parameter.name,
        parameter.shape[1],
        row_init(parameter, initializer, seed),
        row_optimizer(parameter, optimizer),
        memory_rows,
    )


def row_optimizer(parameter: Parameter, optimizer: Optimizer) -> RowOptimizer:
    """The row optimizer for the user's optimizer, including weight decay."""
    if not isinstance(optimizer, SpecOptimizer) or not optimizer.spec.is_elementwise:
        usable = ", ".join(kind.__name__ for kind in ALGORITHMS if kind.spec.is_elementwise)
        raise ConfigError(
            f"{type(optimizer).__name__} cannot train the table {parameter.name!r} by rows; use one of {usable}, or "
            "build the embedding without is_sparse"
        )
    settings = optimizer.settings_of(parameter)
    values = {s.row_name or s.name: float(settings[s.name]) for s in optimizer.spec.settings}
    parameter_decay = to_regularizer(parameter.regularizer, f"regularizer of parameter {parameter.name!r}")
    decay = optimizer.regularization if parameter_decay is None else parameter_decay
    if decay is not None and decay.coeff:
        if not isinstance(decay, L2Decay):
            raise ConfigError(
                f"the table {parameter.name!r} has {type(decay).__name__}; tables on servers support L2Decay only: use "
                "it, or build the embedding without is_sparse"
            )
        values["l2"] = decay.coeff
    return RowOptimizer(optimizer.spec.name, values)


def row_init(parameter: Parameter, initializer: Any, seed: int) -> RowInit:
    """The row initializer for the user's initializer: a row is initialized when it is first looked up."""
    if isinstance(initializer, initial.RandomInitializer) and initializer.seed:
        seed = initializer.seed
    if isinstance(initializer, initial.Xavier | initial.MSRA):
        total = initializer.fan(parameter.shape)
        limit = math.sqrt(6.0 / total)
        return (
            RowInit("uniform", -limit, limit, seed)
            if initializer.uniform
            else RowInit("normal", 0.0, math.sqrt(2.0 / total), seed)
        )
    if isinstance(initializer, initial.Constant):
        return RowInit("constant", float(initializer.value), 0.0, seed)
    if isinstance(initializer, initial.Uniform):
        return RowInit("uniform", initializer.low, initializer.high, seed)
    if isinstance(initializer, initial.TruncatedNormal):
        return RowInit("truncated_normal", initializer.mean, initializer.std, seed)
    if isinstance(initializer, initial.Normal):
        return RowInit("normal", initializer.mean, initializer.std, seed)
    raise ConfigError(
        f"the table {parameter.name!r} has the initializer {type(initializer).__name__}, which cannot initialize "
        "single rows; use Constant, Uniform, Normal, TruncatedNormal, Xavier or MSRA"
    )
