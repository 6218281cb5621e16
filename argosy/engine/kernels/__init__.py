"""Kernels of our own, in C++: what is fused runs as one loop over memory.

    source/*.cpp ──(the machine's compiler, once)──▶ cache/kernels/…so ──▶ library().argosy_bn_act_forward(…)

The sources take plain pointers and sizes; the ops next door check what they pass. They run on torch's own threads.
Without a compiler there is no library, and fused ops are not made: `unavailable()` says why.
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.kernels.build import compiler
from argosy.engine.kernels.library import library, pointer, unavailable

__all__ = ["compiler", "library", "pointer", "unavailable"]
