"""The public names of `argosy`, as in Paddle."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Literal as _Literal

import torch as _torch

from argosy import (
    common_ops_import,
    core,
    distributed,
    framework,
    io,
    metric,
    metrics,
    nn,
    optimizer,
    reader,
    regularizer,
    static,
    tensor,
    utils,
)
from argosy.device import get_device, set_device
from argosy.engine.collective import world as _world
from argosy.engine.data.readers import batch
from argosy.engine.errors import ArgosyError as _ArgosyError
from argosy.engine.ir.variable import Variable as Tensor
from argosy.engine.runtime.flags import get_flags, set_flags
from argosy.framework.default_dtype import get_default_dtype, set_default_dtype
from argosy.framework.io import load, save
from argosy.framework.layer import ParamAttr
from argosy.framework.missing import missing as _missing
from argosy.framework.missing import raises as _raises
from argosy.framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)
from argosy.modules import submodules as _submodules
from argosy.static.input import create_parameter
from argosy.tensor import *  # noqa: F403  (paddle.add and others are top-level names)

if _TYPE_CHECKING:
    from argosy import dataset, fluid, incubate, text, timeline, vision

float16, bfloat16, float32, float64 = _torch.float16, _torch.bfloat16, _torch.float32, _torch.float64
int8, int16, int32, int64, uint8, bool = (
    _torch.int8,
    _torch.int16,
    _torch.int32,
    _torch.int64,
    _torch.uint8,
    _torch.bool,
)

Error = _ArgosyError
no_grad = _torch.no_grad


def enable_static() -> None:
    """No effect: static mode is the only mode; for scripts that turn it on."""


disable_static = _raises("argosy.disable_static", "Argosy has static programs only; for eager mode use torch")


def in_dynamic_mode() -> _Literal[False]:
    """False: there is no eager mode."""
    return False


def seed(value: int) -> None:
    """Seed programs without a `random_seed`; the seed differs between ranks."""
    _torch.manual_seed(value + _world().rank)


__all__ = [  # noqa: PLE0604  (names of another list)
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Error",
    "ParamAttr",
    "Tensor",
    "batch",
    "bfloat16",
    "bool",
    "common_ops_import",
    "core",
    "create_parameter",
    "dataset",
    "disable_static",
    "distributed",
    "enable_static",
    "float16",
    "float32",
    "float64",
    "fluid",
    "framework",
    "get_default_dtype",
    "get_device",
    "get_flags",
    "in_dynamic_mode",
    "incubate",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
    "load",
    "metric",
    "metrics",
    "nn",
    "no_grad",
    "optimizer",
    "reader",
    "regularizer",
    "save",
    "seed",
    "set_default_dtype",
    "set_device",
    "set_flags",
    "static",
    "tensor",
    "text",
    "timeline",
    "uint8",
    "utils",
    "vision",
    *vars(tensor)["__all__"],
]
_ON_FIRST_USE = (  # most scripts do not need them, and every rank would wait for their import
    "compat",
    "dataset",
    "device",
    "fluid",
    "incubate",
    "plan",
    "ray",
    "report",
    "sysconfig",
    "text",
    "timeline",
    "version",
    "vision",
)
__getattr__ = _submodules("argosy", _ON_FIRST_USE, _missing("argosy", globals()))
