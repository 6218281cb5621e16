"""reshape_, squeeze_, …: in a static program the same as reshape, squeeze, …, as in Paddle."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.framework.variant import variant
from argosy.tensor import manipulation, math


@variant(manipulation.reshape)
def reshape_() -> Any:
    """reshape; x is not changed."""


@variant(manipulation.squeeze)
def squeeze_() -> Any:
    """squeeze; x is not changed."""


@variant(manipulation.unsqueeze)
def unsqueeze_() -> Any:
    """unsqueeze; x is not changed."""


@variant(manipulation.scatter)
def scatter_() -> Any:
    """scatter; x is not changed."""


@variant(math.tanh)
def tanh_() -> Any:
    """tanh; x is not changed."""
