"""Activations as layers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.framework.initializer import Constant
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer
from argosy.nn.layer.layers import Layer


class ReLU(FunctionLayer):
    """max(x, 0)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.relu, name=name)


class ReLU6(FunctionLayer):
    """x, at least 0 and at most 6."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.relu6, name=name)


class LeakyReLU(FunctionLayer):
    """x above 0, else negative_slope · x."""

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__(functional.leaky_relu, negative_slope=negative_slope, name=name)


class PReLU(Layer):
    """x above 0, else weight · x with a learned weight: one, or one for each channel."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, weight_attr: Any = None, name: str | None = None
    ) -> None:
        super().__init__()
        self._weight = self.create_parameter(
            [num_parameters], weight_attr, default_initializer=Constant(init)
        )
        self._name = name

    def forward(self, x: Any) -> Any:
        return functional.prelu(x, self._weight, name=self._name)


class ThresholdedReLU(FunctionLayer):
    """x above the threshold, else 0."""

    def __init__(self, threshold: float = 1.0, name: str | None = None) -> None:
        super().__init__(functional.thresholded_relu, threshold=threshold, name=name)


class ELU(FunctionLayer):
    """x above 0, else alpha · (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__(functional.elu, alpha=alpha, name=name)


class SELU(FunctionLayer):
    """scale · x above 0, else scale · alpha · (exp(x) - 1)."""

    def __init__(
        self,
        scale: float = 1.0507009873554804934193349852946,
        alpha: float = 1.6732632423543772848170429916717,
        name: str | None = None,
    ) -> None:
        super().__init__(functional.selu, scale=scale, alpha=alpha, name=name)


class GELU(FunctionLayer):
    """x times the Gaussian distribution function of x, or its form with tanh."""

    def __init__(self, approximate: bool = False, name: str | None = None) -> None:
        super().__init__(functional.gelu, approximate=approximate, name=name)


class Sigmoid(FunctionLayer):
    """1 / (1 + exp(-x))."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.sigmoid, name=name)


class LogSigmoid(FunctionLayer):
    """log(sigmoid(x)), without overflow."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.log_sigmoid, name=name)


class Hardsigmoid(FunctionLayer):
    """x / 6 + 0.5, at least 0 and at most 1."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.hardsigmoid, name=name)


class Hardswish(FunctionLayer):
    """x · relu6(x + 3) / 6."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.hardswish, name=name)


class Swish(FunctionLayer):
    """x · sigmoid(x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.swish, name=name)


class Silu(FunctionLayer):
    """x · sigmoid(x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.silu, name=name)


class Mish(FunctionLayer):
    """x · tanh(softplus(x))."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.mish, name=name)


class Tanh(FunctionLayer):
    """The hyperbolic tangent."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.tanh, name=name)


class Tanhshrink(FunctionLayer):
    """x - tanh(x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.tanhshrink, name=name)


class Hardtanh(FunctionLayer):
    """x, at least `min` and at most `max`."""

    def __init__(self, min: float = -1.0, max: float = 1.0, name: str | None = None) -> None:
        super().__init__(functional.hardtanh, min=min, max=max, name=name)


class Hardshrink(FunctionLayer):
    """x where |x| is above the threshold, else 0."""

    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__(functional.hardshrink, threshold=threshold, name=name)


class Softshrink(FunctionLayer):
    """x shrunk towards 0 by the threshold; 0 where |x| is below it."""

    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__(functional.softshrink, threshold=threshold, name=name)


class Softplus(FunctionLayer):
    """log(1 + exp(beta · x)) / beta; x itself where beta · x is above the threshold."""

    def __init__(self, beta: float = 1, threshold: float = 20, name: str | None = None) -> None:
        super().__init__(functional.softplus, beta=beta, threshold=threshold, name=name)


class Softsign(FunctionLayer):
    """x / (1 + |x|)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.softsign, name=name)


class Softmax(FunctionLayer):
    """exp(x) divided by its sum along an axis."""

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__(functional.softmax, axis=axis, name=name)


class LogSoftmax(FunctionLayer):
    """log(softmax(x)), without overflow."""

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__(functional.log_softmax, axis=axis, name=name)


class Maxout(FunctionLayer):
    """The greatest of each `groups` neighbouring channels."""

    def __init__(self, groups: int, axis: int = 1, name: str | None = None) -> None:
        super().__init__(functional.maxout, groups=groups, axis=axis, name=name)
