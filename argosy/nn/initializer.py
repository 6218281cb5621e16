"""nn.initializer: see argosy.framework.initializer."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.initializer import (
    MSRA,
    Assign,
    Bilinear,
    Constant,
    Initializer,
    KaimingNormal,
    KaimingUniform,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Uniform,
    Xavier,
    XavierNormal,
    XavierUniform,
    set_global_initializer,
)

__all__ = [
    "MSRA",
    "Assign",
    "Bilinear",
    "Constant",
    "Initializer",
    "KaimingNormal",
    "KaimingUniform",
    "Normal",
    "NumpyArray",
    "TruncatedNormal",
    "Uniform",
    "Xavier",
    "XavierNormal",
    "XavierUniform",
    "set_global_initializer",
]
