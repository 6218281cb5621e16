"""Layers as classes, `nn.functional`, `nn.initializer`, gradient clipping."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.layer import ParamAttr
from argosy.framework.missing import missing
from argosy.nn import functional, initializer
from argosy.nn import layer as _layer
from argosy.nn.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from argosy.nn.layer import *

__all__ = [  # noqa: PLE0604  (names of another list)
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "ParamAttr",
    "functional",
    "initializer",
    *vars(_layer)["__all__"],
]
__getattr__ = missing(__name__, globals())
