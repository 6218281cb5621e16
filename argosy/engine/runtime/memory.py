"""Let the C library keep the memory that a step frees, for the next step.

By default glibc gives every large block back to the kernel and gets it anew, zeroed page by page. A ResNet50
step at batch 8 takes 106,000 page faults that way, a sixth of its time. Kept, it takes none.

To be called after the first step, which makes all that is small and stays (kernels, caches): made among the
large blocks, it would cut pieces out of them, and the process would grow by a quarter.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import functools

from argosy.engine import env
from argosy.engine.log import logger

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Do it, once in the process, unless ARGOSY_KEEP_MEMORY=0 or the C library is not glibc."""
    if not env.flag("ARGOSY_KEEP_MEMORY", default=True):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        logger.debug("this C library has no mallopt: freed memory goes back to the kernel")
        return False
    # No block by mmap, so all come from the heap; the heap does not shrink; it grows by 64 MiB at a time.
    return all((mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 2**26)))
