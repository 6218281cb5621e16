"""fluid.initializer: the initialisers under their 1.x names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.initializer import (
    MSRA,
    Constant,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Uniform,
    Xavier,
)

ConstantInitializer = Constant
UniformInitializer = Uniform
NormalInitializer = Normal
TruncatedNormalInitializer = TruncatedNormal
XavierInitializer = Xavier
MSRAInitializer = MSRA
NumpyArrayInitializer = NumpyArray

__all__ = [
    "MSRA",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArray",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]
