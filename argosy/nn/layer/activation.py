"""Activations as layers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.framework.initializer import Constant
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer
from argosy.nn.layer.layers import Layer


class ReLU(FunctionLayer, function=functional.relu):
    """max(x, 0)."""


class ReLU6(FunctionLayer, function=functional.relu6):
    """x, at least 0 and at most 6."""


class LeakyReLU(FunctionLayer, function=functional.leaky_relu):
    """x above 0, else negative_slope · x."""


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


class ThresholdedReLU(FunctionLayer, function=functional.thresholded_relu):
    """x above the threshold, else 0."""


class ELU(FunctionLayer, function=functional.elu):
    """x above 0, else alpha · (exp(x) - 1)."""


class SELU(FunctionLayer, function=functional.selu):
    """scale · x above 0, else scale · alpha · (exp(x) - 1)."""


class GELU(FunctionLayer, function=functional.gelu):
    """x times the Gaussian distribution function of x, or its form with tanh."""


class Sigmoid(FunctionLayer, function=functional.sigmoid):
    """1 / (1 + exp(-x))."""


class LogSigmoid(FunctionLayer, function=functional.log_sigmoid):
    """log(sigmoid(x)), without overflow."""


class Hardsigmoid(FunctionLayer, function=functional.hardsigmoid, parameters="name"):
    """x / 6 + 0.5, at least 0 and at most 1."""


class Hardswish(FunctionLayer, function=functional.hardswish):
    """x · relu6(x + 3) / 6."""


class Swish(FunctionLayer, function=functional.swish):
    """x · sigmoid(x)."""


class Silu(FunctionLayer, function=functional.silu):
    """x · sigmoid(x)."""


class Mish(FunctionLayer, function=functional.mish):
    """x · tanh(softplus(x))."""


class Tanh(FunctionLayer, function=functional.tanh):
    """The hyperbolic tangent."""


class Tanhshrink(FunctionLayer, function=functional.tanhshrink):
    """x - tanh(x)."""


class Hardtanh(FunctionLayer, function=functional.hardtanh):
    """x, at least `min` and at most `max`."""


class Hardshrink(FunctionLayer, function=functional.hardshrink):
    """x where |x| is above the threshold, else 0."""


class Softshrink(FunctionLayer, function=functional.softshrink):
    """x shrunk towards 0 by the threshold; 0 where |x| is below it."""


class Softplus(FunctionLayer, function=functional.softplus):
    """log(1 + exp(beta · x)) / beta; x itself where beta · x is above the threshold."""


class Softsign(FunctionLayer, function=functional.softsign):
    """x / (1 + |x|)."""


class Softmax(FunctionLayer, function=functional.softmax, parameters="axis name"):
    """exp(x) divided by its sum along an axis."""


class LogSoftmax(FunctionLayer, function=functional.log_softmax, parameters="axis name"):
    """log(softmax(x)), without overflow."""


class Maxout(FunctionLayer, function=functional.maxout):
    """The greatest of each `groups` neighbouring channels."""
