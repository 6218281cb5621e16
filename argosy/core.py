"""paddle.fluid.core: the names that scripts use."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, MutableMapping
from enum import IntEnum
from typing import Any

import torch

from argosy.engine.data.lod_tensor import LoDTensor, LoDTensorArray
from argosy.engine.errors import EnforceNotMet, EOFException
from argosy.engine.runtime import flags
from argosy.engine.runtime.scope import Scope
from argosy.framework.missing import missing
from argosy.framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)


class _Kind(IntEnum):
    """Kinds of variables, with Paddle's numbers."""

    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17


class VarDesc:
    """Paddle's description of a variable; here only its types."""

    class VarType:
        """The dtypes, which are torch's: `VarType.FP32` is torch.float32, and the kinds of variables."""

        BOOL, UINT8, INT8, INT16, INT32, INT64 = (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
        )
        FP16, BF16, FP32, FP64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
        LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY = (
            _Kind.LOD_TENSOR,
            _Kind.SELECTED_ROWS,
            _Kind.LOD_TENSOR_ARRAY,
        )
        FEED_MINIBATCH, FETCH_LIST, STEP_SCOPES = _Kind.FEED_MINIBATCH, _Kind.FETCH_LIST, _Kind.STEP_SCOPES
        LOD_RANK_TABLE, PLACE_LIST, READER, RAW = (
            _Kind.LOD_RANK_TABLE,
            _Kind.PLACE_LIST,
            _Kind.READER,
            _Kind.RAW,
        )


class _Flags(MutableMapping[str, Any]):
    """The flags as a mapping; a new value is set as by `set_flags`."""

    def __getitem__(self, name: str) -> Any:
        return flags.flag(name)

    def __setitem__(self, name: str, value: Any) -> None:
        flags.set_flags({name: value})

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the flag {name} cannot be deleted; set another value")

    def __iter__(self) -> Iterator[str]:
        return iter(flags.known())

    def __len__(self) -> int:
        return len(flags.known())


def globals() -> MutableMapping[str, Any]:
    """The flags of the process by name."""
    return _Flags()


def get_cuda_device_count() -> int:
    """The number of GPUs that torch can use."""
    return torch.cuda.device_count()


def is_compiled_with_mkldnn() -> bool:
    """True if torch has oneDNN's kernels."""
    return bool(torch.backends.mkldnn.is_available())


def is_compiled_with_dist() -> bool:
    """True: collectives and parameter servers are always there."""
    return True


def is_compiled_with_brpc() -> bool:
    """False: parameter servers communicate by ZeroMQ."""
    return False


__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "Scope",
    "VarDesc",
    "get_cuda_device_count",
    "globals",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "is_compiled_with_xpu",
]
__getattr__ = missing(__name__, vars())
