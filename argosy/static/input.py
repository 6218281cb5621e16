"""Feeds, parameters and other variables that a script creates itself; device_guard and name_scope."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.framework.initializer import Constant, NumpyArray
from argosy.framework.layer import LayerBuilder, create_state, to_param_attr


def data(name: str, shape: Sequence[int | None], dtype: Any = None, lod_level: int = 0) -> Variable:
    """A variable to feed; None or -1 in the shape is a size that may differ between runs."""
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f"data: name is {name!r}; give a non-empty string")
    if isinstance(shape, int) or shape is None:
        raise ArgumentTypeError(f"data {name!r}: shape is {shape!r}; give a list such as [None, 3, 224, 224]")
    return default_main_program().data(name, shape, dtype or torch.get_default_dtype(), lod_level)


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Any = None,
) -> Any:
    """A parameter; Xavier by default, zeros for a bias."""
    described = to_param_attr(attr)
    if described is None:
        raise ConfigError("create_parameter: attr=False means no parameter; give a ParamAttr, a name or None")
    named = replace(described, name=described.name or name)
    return LayerBuilder("create_parameter", name).parameter(named, shape, dtype, is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: Any,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of the scope with this initial value; it keeps its value between runs, persistable or not.

    `value` is a number for all elements, or an array of this shape.
    """
    array = np.asarray(value)
    initial = Constant(array.item()) if array.size == 1 else NumpyArray(array)
    return create_state(name or names.generate("global_var"), shape, dtype, initial)


@dataclass(frozen=True)
class InputSpec:
    """The shape, dtype and name of a feed; hashable, the shape is a tuple."""

    shape: Sequence[int | None]
    dtype: Any = "float32"
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))


@contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Paddle's device hint for the ops built inside. No effect: all ops run on the executor's place."""
    if device is not None and device.split(":")[0] not in ("cpu", "gpu", "all"):
        raise ConfigError(f"device_guard({device!r}): use 'cpu', 'gpu', 'gpu:1' or None")
    _warn_once()
    yield


@cache
def _warn_once() -> None:
    logger.warning("device_guard has no effect: all ops of a program run on the executor's place")


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Prefix the names generated inside."""
    with names.guard(f"{prefix}/" if prefix else None):
        yield
