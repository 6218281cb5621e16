"""relu_, elu_, …: in a static program the same as relu, elu, …, as in Paddle."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.framework.variant import variant
from argosy.nn.functional import activation


@variant(activation.relu)
def relu_() -> Any:
    """relu; x is not changed."""


@variant(activation.elu)
def elu_() -> Any:
    """elu; x is not changed."""


@variant(activation.softmax)
def softmax_() -> Any:
    """softmax; x is not changed."""


@variant(activation.tanh)
def tanh_() -> Any:
    """tanh; x is not changed."""
