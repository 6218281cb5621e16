"""Load the library of C++ kernels, or log once why it is unavailable."""

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
    """The library, or the reason why it is unavailable."""
    if not env.flag("ARGOSY_KERNELS", default=True):
        return "ARGOSY_KERNELS=0"
    torch.get_num_threads()  # load torch's OpenMP first, so that the library uses the same runtime
    try:
        return ctypes.CDLL(str(built()))
    except (KernelError, OSError) as e:
        logger.warning("Argosy's C++ kernels are unavailable: %s", e)
        return str(e).splitlines()[0]


def library() -> ctypes.CDLL:
    """The library; raises KernelError if it is unavailable."""
    loaded = _loaded()
    if isinstance(loaded, str):
        raise KernelError(f"Argosy's C++ kernels are unavailable: {loaded}")
    return loaded


def unavailable() -> str | None:
    """Why the library is unavailable; None if it is available."""
    loaded = _loaded()
    return loaded if isinstance(loaded, str) else None
