"""fluid.initializer: the initialisers under their 1.x names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.initializer import (
    MSRA,
    Bilinear,
    Constant,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Uniform,
    Xavier,
    set_global_initializer,
)

ConstantInitializer = Constant
UniformInitializer = Uniform
NormalInitializer = Normal
TruncatedNormalInitializer = TruncatedNormal
XavierInitializer = Xavier
MSRAInitializer = MSRA
BilinearInitializer = Bilinear
NumpyArrayInitializer = NumpyArray

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
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
    "set_global_initializer",
]
