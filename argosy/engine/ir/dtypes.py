"""Conversion of dtypes from 'float32', torch.float32, numpy.float32, Paddle's `paddle.float32`.

NumPy's other names mean what NumPy says: 'int' is int64, 'double' and 'float' are float64, 'half' is float16.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError

_BY_NAME = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


def to_dtype(dtype: Any) -> torch.dtype:
    """The torch dtype; raises ArgumentTypeError, which lists the known names, for any other value."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype
    if not isinstance(dtype, str) or dtype not in _BY_NAME:
        try:
            name = None if dtype is None else np.dtype(dtype).name  # np.dtype(None) is float64
        except TypeError:
            name = str(dtype)
    if name not in _BY_NAME:
        raise ArgumentTypeError(f"dtype {dtype!r} is unknown; use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def dtype_name(dtype: torch.dtype) -> str:
    """float32, int64: torch's name without its prefix."""
    return str(dtype).removeprefix("torch.")
