"""A layer that is a function with some arguments fixed: ReLU, MaxPool2D, MSELoss."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from argosy.nn.layer.layers import Layer


class FunctionLayer(Layer):
    """forward(*inputs) is function(*inputs, **arguments)."""

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        super().__init__()
        self._function, self._arguments = function, arguments

    def forward(self, *inputs: Any) -> Any:
        return self._function(*inputs, **self._arguments)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self._arguments.items() if value is not None)
