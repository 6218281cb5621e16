"""nn.initializer: see argosy.framework.initializer."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.initializer import (
    MSRA,
    Assign,
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
)

__all__ = [
    "MSRA",
    "Assign",
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
]
