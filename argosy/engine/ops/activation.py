"""The activations that fused ops support: their names, numbers in the C++ kernels, and ATen ops."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, fx

aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """One activation. `number` is its constant in kernels/source/common.h."""

    name: str
    number: int
    forward: Callable[..., Tensor]
    """ATen's implementation, used where the C++ kernel does not run: (input, scale) -> output."""
    from_input: bool = False
    """True: its backward reads the input; False: the output."""

    known: ClassVar[dict[str, "Activation"]] = {}

    def __post_init__(self) -> None:
        Activation.known[self.name] = self


Activation("relu", 0, lambda x, scale: torch.relu(x))
Activation("tanh", 1, lambda x, scale: torch.tanh(x))
Activation("sigmoid", 2, lambda x, scale: torch.sigmoid(x))
Activation("silu", 3, lambda x, scale: aten.silu(x), from_input=True)
Activation("gelu", 4, lambda x, scale: aten.gelu(x), from_input=True)
Activation("gelu_tanh", 5, lambda x, scale: aten.gelu(x, approximate="tanh"), from_input=True)
Activation("scale", 6, lambda x, scale: x * scale)
Activation("none", 7, lambda x, scale: x)


def numbered(name: str, allowed: tuple[str, ...]) -> int:
    """The number of an activation in the C++ kernels; raises ValueError if the op does not support it."""
    if name not in allowed:
        raise ValueError(f"activation {name!r} is unsupported; use one of {', '.join(allowed)}")
    return Activation.known[name].number


_FORWARD = {
    aten.relu.default: "relu",
    aten.tanh.default: "tanh",
    aten.sigmoid.default: "sigmoid",
    aten.silu.default: "silu",
    aten.gelu.default: "gelu",
}
_BACKWARD = {
    aten.threshold_backward.default: "relu",
    aten.tanh_backward.default: "tanh",
    aten.sigmoid_backward.default: "sigmoid",
    aten.silu_backward.default: "silu",
    aten.gelu_backward.default: "gelu",
}


def activation_of(node: fx.Node) -> str | None:
    """The name of the activation that a node computes; None if it computes none."""
    return _named(_FORWARD, node)


def derivative_of(node: fx.Node) -> str | None:
    """The name of the activation whose gradient a node computes from (gradient, reference); None if it is no such."""
    if node.target is aten.threshold_backward.default and node.args[2] != 0:
        return None
    return _named(_BACKWARD, node)


def _named(table: dict[Any, str], node: fx.Node) -> str | None:
    name = table.get(node.target)
    return "gelu_tanh" if name == "gelu" and node.kwargs.get("approximate") == "tanh" else name
