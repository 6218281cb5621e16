"""Load the library, or say once why there is none."""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import functools

import torch

from argosy.engine import env
from argosy.engine.errors import KernelError
from argosy.engine.kernels.build import built
from argosy.engine.log import logger


@functools.cache
def _loaded() -> ctypes.CDLL | str:
    """The library, or why there is none."""
    if not env.flag("ARGOSY_KERNELS", default=True):
        return "ARGOSY_KERNELS=0"
    torch.get_num_threads()  # torch's OpenMP is loaded now, and ours is the same one
    try:
        return ctypes.CDLL(str(built()))
    except (KernelError, OSError) as e:
        logger.warning("Argosy's own kernels are not there: %s", e)
        return str(e).splitlines()[0]


def library() -> ctypes.CDLL:
    """The library; KernelError if there is none."""
    found = _loaded()
    if isinstance(found, str):
        raise KernelError(f"Argosy's own kernels are not there: {found}")
    return found


def unavailable() -> str | None:
    """Why there is no library; None if there is one."""
    found = _loaded()
    return found if isinstance(found, str) else None


def pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    """Where a tensor's first element lies; null for none."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
