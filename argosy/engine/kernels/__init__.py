"""Argosy's C++ kernels: fused ops as one loop over memory.

    source/*.cpp ──(the machine's compiler, once)──▶ cache/kernels/…so ──▶ BN_ACT_FORWARD(tensors, …)

The functions take plain pointers and sizes. `signatures.py` and `updates.py` define the arguments of each function, and
check them before every call. They run on torch's OpenMP threads. Without a compiler there is no library, and nothing is
fused: `unavailable()` returns the reason. Default fusions do not wait for the compiler: `are_ready()`.
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.kernels.shared_library import are_ready, compiler, library, unavailable

__all__ = ["are_ready", "compiler", "library", "unavailable"]
