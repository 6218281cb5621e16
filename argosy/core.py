"""paddle.core: the names that scripts use."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.lod_tensor import LoDTensor, LoDTensorArray
from argosy.engine.errors import EnforceNotMet, EOFException
from argosy.engine.runtime.scope import Scope
from argosy.framework.missing import missing
from argosy.framework.place import CPUPlace, CUDAPlace, is_compiled_with_cuda

__all__ = [
    "CPUPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "Scope",
    "is_compiled_with_cuda",
]
__getattr__ = missing(__name__, globals())
