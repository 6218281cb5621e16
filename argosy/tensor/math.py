"""Arithmetic, element by element."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import LayerBuilder, apply
from argosy.framework.variant import binary, unary
from argosy.tensor.arguments import chosen_dtype, one_axis


def _round(x: torch.Tensor) -> torch.Tensor:
    whole = torch.trunc(x)
    return whole + torch.sign(x) * ((x - whole).abs() >= 0.5)


abs = unary("abs", torch.abs, "x without its sign.")
acos = unary("acos", torch.acos, "The inverse of cos, in radians.")
asin = unary("asin", torch.asin, "The inverse of sin, in radians.")
atan = unary("atan", torch.atan, "The inverse of tan, in radians.")
ceil = unary("ceil", torch.ceil, "The next whole number above.")
cos = unary("cos", torch.cos, "The cosine of x in radians.")
cosh = unary("cosh", torch.cosh, "The hyperbolic cosine.")
erf = unary("erf", torch.erf, "The error function.")
exp = unary("exp", torch.exp, "e to the power of x.")
expm1 = unary("expm1", torch.expm1, "exp(x) - 1, exact for small x.")
floor = unary("floor", torch.floor, "The next whole number below.")
log = unary("log", torch.log, "The natural logarithm.")
log10 = unary("log10", torch.log10, "The logarithm to base 10.")
log1p = unary("log1p", torch.log1p, "log(1 + x), exact for small x.")
log2 = unary("log2", torch.log2, "The logarithm to base 2.")
neg = unary("neg", torch.neg, "-x.")
reciprocal = unary("reciprocal", torch.reciprocal, "1 / x.")
round = unary(
    "round", _round, "The nearest whole number; a half goes away from zero, as in Paddle (torch: to even)."
)
rsqrt = unary("rsqrt", torch.rsqrt, "1 / sqrt(x).")
sign = unary("sign", torch.sign, "-1, 0 or 1.")
sin = unary("sin", torch.sin, "The sine of x in radians.")
sinh = unary("sinh", torch.sinh, "The hyperbolic sine.")
sqrt = unary("sqrt", torch.sqrt, "The square root.")
square = unary("square", torch.square, "x * x.")
tan = unary("tan", torch.tan, "The tangent of x in radians.")
digamma = unary("digamma", torch.digamma, "The derivative of lgamma.")
lgamma = unary("lgamma", torch.lgamma, "The logarithm of the gamma function.")
tanh = unary("tanh", torch.tanh, "The hyperbolic tangent.")
trunc = unary("trunc", torch.trunc, "x without its fraction.")

isfinite = unary("isfinite", torch.isfinite, "True where x is neither infinite nor NaN.")
isinf = unary("isinf", torch.isinf, "True where x is infinite.")
isnan = unary("isnan", torch.isnan, "True where x is not a number.")

add = binary("add", torch.add, "x + y.", "elementwise_add")
subtract = binary("subtract", torch.sub, "x - y.", "elementwise_sub")
multiply = binary("multiply", torch.mul, "x * y.", "elementwise_mul")
divide = binary(
    "divide", torch.div, "x / y; of integers too the exact quotient (Paddle drops it).", "elementwise_div"
)
floor_divide = binary(
    "floor_divide",
    torch.floor_divide,
    "x / y rounded down (Paddle 2.0: towards zero).",
    "elementwise_floordiv",
)
remainder = binary(
    "remainder", torch.remainder, "x - y * floor(x / y): it has the sign of y.", "elementwise_mod"
)
mod = floor_mod = remainder
maximum = binary("maximum", torch.maximum, "The greater of x and y.", "elementwise_max")
minimum = binary("minimum", torch.minimum, "The smaller of x and y.", "elementwise_min")
atan2 = binary("atan2", torch.atan2, "The angle of the point (y, x): atan(x / y) in the right quadrant.")
pow = binary("pow", torch.pow, "x to the power of y, a number or a Variable.", "elementwise_pow")


def cast(x: Variable, dtype: Any) -> Any:
    """x with elements of another dtype."""
    return apply("cast", torch.Tensor.to, x, chosen_dtype(dtype))


def clip(x: Variable, min: Any = None, max: Any = None, name: str | None = None) -> Any:
    """x with what is below `min` set to `min` and what is above `max` set to `max`; None: no bound."""

    def bounded(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
        out = x if low is None else torch.clamp(x, min=low)
        out = out if high is None else torch.clamp(out, max=high)
        return out.clone() if out is x else out

    return apply("clip", bounded, x, min, max, name=name)


def scale(
    x: Variable,
    scale: Any = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Any:
    """scale * x + bias, or scale * (x + bias) if not `bias_after_scale`; of x's dtype, then `act` by name."""

    def scaled(x: torch.Tensor, factor: Any) -> torch.Tensor:
        out: torch.Tensor = (x if bias_after_scale or not bias else x + bias) * factor
        return (out + bias if bias_after_scale and bias else out).to(x.dtype)

    layer = LayerBuilder("scale", name)
    return layer.activate(layer.run(scaled, x, scale), act)


def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Any:
    """scale_b * tanh(scale_a * x)."""
    return apply("stanh", lambda x: scale_b * torch.tanh(scale_a * x), x, name=name)


def add_n(inputs: Variable | Sequence[Variable], name: str | None = None) -> Any:
    """The sum of several Variables of one shape; of a single Variable a copy."""

    def total(first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        out = first
        for other in others:
            out = out + other
        return out if others else out.clone()

    listed = [inputs] if isinstance(inputs, Variable) else list(inputs)
    if not listed:
        raise ConfigError("add_n was given an empty list; give at least one Variable")
    return apply("sum", total, *listed, name=name)


def increment(x: Variable, value: float = 1.0, name: str | None = None) -> Any:
    """Add `value` to x in place, such as to a counter of the scope, and return x."""
    if x.is_data:
        raise ConfigError(
            f"increment would change the fed array of {x.name!r} itself; use {x.name} + {value}"
        )

    if not x.dtype.is_floating_point and value != int(value):
        raise ConfigError(f"increment: {value} cannot be added to whole numbers ({x!r}); use a whole number")
    step = value if x.dtype.is_floating_point else int(value)

    if x.program.is_outside(x):  # in a branch or a loop
        x.program.write(x, apply("increment", torch.add, x, step, name=name).value)
        return x

    def changed(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x.add_(step)

    return apply("increment", changed, x, name=name)


def cumsum(x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """The sum of all elements up to each one along `axis`; None: of x as one row."""
    wanted = None if dtype is None else chosen_dtype(dtype)
    if axis is None:
        return apply("cumsum", lambda x: torch.cumsum(x.flatten(), 0, dtype=wanted), x, name=name)
    return apply("cumsum", torch.cumsum, x, one_axis("cumsum", axis, x.ndim), dtype=wanted, name=name)


def addmm(
    input: Variable, x: Variable, y: Variable, beta: float = 1.0, alpha: float = 1.0, name: str | None = None
) -> Any:
    """beta * input + alpha * (x @ y)."""
    return apply("addmm", torch.addmm, input, x, y, beta=beta, alpha=alpha, name=name)


def multiplex(inputs: Sequence[Variable], index: Variable, name: str | None = None) -> Any:
    """Row i of the result is row i of `inputs[index[i]]`."""

    def chosen(index: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack(inputs)[index.flatten(), torch.arange(inputs[0].shape[0])]

    return apply("multiplex", chosen, index, *inputs, name=name)


def cumprod(x: Variable, dim: int, dtype: Any = None, name: str | None = None) -> Any:
    """The product of all elements up to each one along `dim`."""
    wanted = None if dtype is None else chosen_dtype(dtype)
    return apply("cumprod", torch.cumprod, x, one_axis("cumprod", dim, x.ndim), dtype=wanted, name=name)


def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """The shape of x + y for x and y of these shapes."""
    try:
        return list(torch.broadcast_shapes(tuple(x_shape), tuple(y_shape)))
    except RuntimeError as e:
        raise ConfigError(
            f"broadcast_shape: {list(x_shape)} and {list(y_shape)} do not fit; sizes must be equal, or one of them 1"
        ) from e
