"""Replacements for kernels that crash the process, or raise, where eager mode returns a result.

A program from a file may call ATen's inner kernels with arguments that eager mode's outer functions would have
rejected: arguments that those kernels do not check are checked here. Uninitialised memory is never a result: it may
contain data of other programs.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from argosy.engine.ops.memory_format import memory_format_of

aten = torch.ops.aten
_batch_norm_backward = aten.native_batch_norm_backward.default._op
_batch_norm = aten.native_batch_norm.default._op
_group_norm_backward = aten.native_group_norm_backward.default._op
_layer_norm_backward = aten.native_layer_norm_backward.default._op
_INT64 = 2**63
_UNINITIALISED = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)

_CONTIGUOUS = (
    aten._weight_norm_interface.default,
    aten._weight_norm_interface_backward.default,
    aten.fractional_max_pool2d_backward.default,
    aten.nll_loss2d_backward.default,
)


def _native_batch_norm(x: Tensor, *rest: Any) -> Any:
    """ATen's kernel reads one element of every vector per channel, without checking their sizes."""
    _check_channels("native_batch_norm", x, rest[:4])
    return _batch_norm(x, *rest)


def _check_channels(name: str, x: Tensor, vectors: Sequence[Any]) -> None:
    for vector in vectors:
        if vector is not None and vector.shape != x.shape[1:2]:
            raise ValueError(
                f"{name} of {list(x.shape)} was given weights or statistics of {list(vector.shape)}; they must be "
                f"{list(x.shape[1:2])}"
            )


def _native_layer_norm_backward(dy: Tensor, x: Tensor, normalized: list[int], *rest: Any) -> Any:
    """ATen's kernel reads a mean and a deviation per row, and as many elements of dy as of x, without checks."""
    rows = math.prod(x.shape[: x.ndim - len(normalized)])
    if dy.shape != x.shape or rest[0].numel() != rows or rest[1].numel() != rows:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in (dy, *rest[:2]))
        raise ValueError(
            f"native_layer_norm_backward of {list(x.shape)} was given a gradient, means and deviations of {shapes}; "
            f"they must be {list(x.shape)} and {rows} elements each"
        )
    return _layer_norm_backward(dy, x, normalized, *rest)


def _native_batch_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """ATen's kernel divides by the number of rows, which is never 0 in eager mode."""
    is_training = rest[4]
    _check_channels("native_batch_norm_backward", x, (weight, *rest[:2], *(rest[2:4] if is_training else ())))
    if dy.shape != x.shape:
        raise ValueError(
            f"native_batch_norm_backward of {list(x.shape)} was given a gradient of {list(dy.shape)}"
        )
    if x.numel():
        return _batch_norm_backward(dy, x, weight, *rest)  # type: ignore[no-any-return]  # an op
    output_mask = rest[-1]
    channels = x.new_zeros(x.shape[1]) if weight is None else torch.zeros_like(weight)
    gradients = torch.zeros_like(x), channels, channels.clone()
    return tuple(g if wanted else None for g, wanted in zip(gradients, output_mask, strict=True))  # type: ignore[return-value]  # three


def _native_group_norm_backward(
    dy: Tensor, x: Tensor, *rest: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """ATen's kernel assumes that dy and x are dense and have the same layout, which autograd ensures in eager mode.

    In channels_last it also reads out of bounds if the gradient of x is not requested.
    """
    *others, (wants_dx, wants_dweight, wants_dbias) = rest
    order = memory_format_of(x)
    output_mask = [wants_dx or order is not torch.contiguous_format, wants_dweight, wants_dbias]
    dx, dweight, dbias = _group_norm_backward(
        dy.contiguous(memory_format=order), x.contiguous(memory_format=order), *others, output_mask
    )
    return dx if wants_dx else None, dweight, dbias


def _of_contiguous(op: OpOverload) -> Callable[..., Any]:
    """ATen's kernel assumes contiguous arguments; passes may have converted images to channels_last."""
    run = op._op

    def function(*args: Any) -> Any:
        return run(*(a.contiguous() if isinstance(a, Tensor) else a for a in args))

    return function


def _zeroed(op: OpOverload) -> Callable[..., Tensor]:
    """The op with zeros instead of uninitialised memory."""
    run = op._op

    def function(*args: Any, **kwargs: Any) -> Tensor:
        tensor: Tensor = run(*args, **kwargs)
        return tensor.zero_()

    return function


def _multiply(a: Any, b: Any) -> Any:
    """a * b for sizes, bounded to 64 bits: a chain of products must not grow without limit."""
    product = a * b
    if type(product) is int and not -_INT64 <= product < _INT64:
        raise OverflowError(f"{a} * {b} is not a size: it has more than 64 bits")
    return product


def _power(a: Any, b: Any) -> Any:
    """a ** b for sizes, bounded: it must not take unlimited time."""
    if type(a) is int and type(b) is int and abs(a) > 1 and abs(b) * a.bit_length() > 1024:
        raise OverflowError(f"{a} ** {b} is not a size: it has more than 64 bits")
    return a**b


def _divide(a: float, b: float) -> float:
    """a / b for sizes, by IEEE 754 as in C++: the variance of one row divides by 0 and is NaN."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


SAFE: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.native_group_norm_backward.default: _native_group_norm_backward,
    **{op: _of_contiguous(op) for op in _CONTIGUOUS},
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_layer_norm_backward.default: _native_layer_norm_backward,
    **{op: _zeroed(op) for op in _UNINITIALISED},
    operator.truediv: _divide,
    operator.mul: _multiply,
    operator.pow: _power,
}
"""Target of a node -> the function that the step calls instead."""
