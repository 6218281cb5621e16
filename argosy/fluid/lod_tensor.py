"""fluid.lod_tensor: constructors of LoDTensors."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.lod_tensor import create_lod_tensor, create_random_int_lodtensor
from argosy.framework.missing import missing

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]
__getattr__ = missing(__name__, globals())
