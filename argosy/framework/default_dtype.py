"""The dtype of parameters and of created tensors for which none is given: torch's default dtype."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import dtype_name, to_dtype


def set_default_dtype(d: Any) -> None:
    """Set the default dtype: 'float16', 'float32' or 'float64'. It is torch's too: torch.set_default_dtype."""
    dtype = to_dtype(d)
    if dtype not in (torch.float16, torch.float32, torch.float64):
        raise ConfigError(f"set_default_dtype({d!r}): use 'float16', 'float32' or 'float64'")
    torch.set_default_dtype(dtype)


def get_default_dtype() -> str:
    """The name of the default dtype, at first 'float32'."""
    return dtype_name(torch.get_default_dtype())
