"""relu_depthwise: a depthwise convolution fused with the relu before it, forward and backward.

    y = relu_depthwise(x, weight, stride, padding)                   y = convolution(relu(x), weight, groups=channels)
    dx, dweight = relu_depthwise_backward(dy, x, weight, …)          dx is masked by x > 0 already

The relu's output is never materialized: backward recomputes it from x. `depthwise` is the same without the relu.
Supports float32, and bfloat16 with arithmetic in float32; channels_last or contiguous. kernels/source/depthwise.cpp has
the loops.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Hashable
from ctypes import c_int64
from functools import partial
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.kernels.choices import best
from argosy.engine.kernels.signatures import DEPTHWISE, DEPTHWISE_BACKWARD
from argosy.engine.ops.op_spec import OpSpec, declare

aten = torch.ops.aten
Sizes = list[int]
Pair = tuple[Tensor | None, Tensor | None]
_DTYPES = (torch.float32, torch.bfloat16)


def _forward(relu: bool, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    y = _fake(x, weight, stride, padding)
    if not x.numel():
        return y.zero_()  # an image without pixels consists of its padding
    if y.numel():
        x = x.contiguous(memory_format=_order(x))
        sizes = _sizes(x, y, weight, stride, padding)
        DEPTHWISE((x, weight.contiguous(), y), sizes, int(relu), _is_last(x))
    return y


def _backward(
    relu: bool, dy: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, output_mask: list[bool]
) -> Pair:
    """dx and dweight; None where `output_mask` is False."""
    dx, dweight = _fake_backward(dy, x, weight, stride, padding, output_mask)
    if not x.numel():
        return dx, None if dweight is None else dweight.zero_()
    order = _order(x)
    x, dy, flat = x.contiguous(memory_format=order), dy.contiguous(memory_format=order), weight.contiguous()
    sums = torch.empty_like(flat)
    sizes = _sizes(x, dy, flat, stride, padding)
    DEPTHWISE_BACKWARD((x, dy, flat, dx, sums), sizes, int(relu), int(order is torch.channels_last))
    return dx, None if dweight is None else dweight.copy_(sums)


def _sizes(x: Tensor, y: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Any:
    """The sizes in the order of depthwise.cpp's Problem."""
    return (c_int64 * 12)(*x.shape, *y.shape[2:], *weight.shape[2:], *stride, *padding)


def _is_last(x: Tensor) -> bool:
    """True if the channels of a pixel are adjacent in memory."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _order(x: Tensor) -> torch.memory_format:
    """The memory format of all results: channels_last if x is so, else contiguous."""
    return torch.channels_last if _is_last(x) else torch.contiguous_format


def _fake(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    rows, columns = _checked(x, weight, stride, padding)
    return torch.empty(
        (x.shape[0], x.shape[1], rows, columns), dtype=x.dtype, device=x.device, memory_format=_order(x)
    )


def _fake_backward(
    dy: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, output_mask: list[bool]
) -> Pair:
    wanted = _checked(x, weight, stride, padding)
    if dy.dtype != x.dtype or tuple(dy.shape) != (*x.shape[:2], *wanted):
        raise ConfigError(
            f"depthwise_backward: dy is {_text(dy)}; it must be as y, {[*x.shape[:2], *wanted]}"
        )
    return (
        torch.empty_like(x, memory_format=_order(x)) if output_mask[0] else None,
        torch.empty_like(weight) if output_mask[1] else None,
    )


def _checked(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Sizes:
    """Rows and columns of y; raises ConfigError for an unsupported convolution."""
    if x.ndim != 4 or x.dtype not in _DTYPES or weight.dtype != x.dtype or x.device.type != "cpu":
        raise ConfigError(
            f"depthwise: x is {_text(x)}, the weight {_text(weight)}; both must be images in float32, or both in "
            "bfloat16, on a CPU"
        )
    if weight.ndim != 4 or tuple(weight.shape[:2]) != (x.shape[1], 1) or 0 in weight.shape[2:]:
        raise ConfigError(
            f"depthwise: the weight is {_text(weight)} for {x.shape[1]} channels; it must have one filter per channel, "
            f"[{x.shape[1]}, 1, height, width], with height and width from 1 on"
        )
    if len(stride) != 2 or len(padding) != 2 or min(stride) < 1 or min(padding) < 0:
        raise ConfigError(
            f"depthwise: stride {stride} and padding {padding}; both are two numbers, from 1 and from 0 on"
        )
    room = [x.shape[2 + i] + 2 * padding[i] - weight.shape[2 + i] for i in (0, 1)]
    if any(n < 0 for n in room):
        raise ConfigError(
            f"depthwise: the kernel of {_text(weight)} is larger than the padded image of {_text(x)}; use a smaller "
            "kernel or more padding"
        )
    return [n // step + 1 for n, step in zip(room, stride, strict=True)]


def _text(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


_FORWARD = "(Tensor x, Tensor weight, int[2] stride, int[2] padding) -> Tensor"
_BACKWARD = (
    "(Tensor dy, Tensor x, Tensor weight, int[2] stride, int[2] padding, bool[2] output_mask) "
    "-> (Tensor, Tensor)"
)
_plain_forward, _plain_backward = partial(_forward, False), partial(_backward, False)


# --- alternatives for kernel search ---------------------------------------------------------------------


def _aten_forward(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    y: Tensor = aten.convolution.default(torch.relu(x), weight, None, *_rest(x, stride, padding))
    return y.contiguous(memory_format=_order(x))


def _aten_backward(
    dy: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, output_mask: list[bool]
) -> Pair:
    y, rest = torch.relu(x), _rest(x, stride, padding)
    dx, dweight, _ = aten.convolution_backward.default(dy, y, weight, None, *rest, [*output_mask, False])
    if dx is not None:
        dx = aten.threshold_backward(dx, y, 0).contiguous(memory_format=_order(x))
    return dx, None if dweight is None else torch.empty_like(weight).copy_(dweight)


def _rest(x: Tensor, stride: Sizes, padding: Sizes) -> tuple[Any, ...]:
    return stride, padding, [1, 1], False, [0, 0], x.shape[1]


FORWARD: dict[str, Callable[..., Tensor]] = {"fused": partial(_forward, True), "aten": _aten_forward}
BACKWARD: dict[str, Callable[..., Pair]] = {"fused": partial(_backward, True), "aten": _aten_backward}


def _relu_forward(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    arguments = (x, weight, stride, padding)
    chosen = best(_key("relu_depthwise", *arguments), FORWARD, arguments, _fused)
    return FORWARD[chosen](*arguments)


def _relu_backward(
    dy: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, output_mask: list[bool]
) -> Pair:
    arguments = (dy, x, weight, stride, padding, output_mask)
    key = (*_key("relu_depthwise_grad", *arguments[1:5]), *output_mask)
    return BACKWARD[best(key, BACKWARD, arguments, _fused)](*arguments)


def _key(name: str, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> tuple[Hashable, ...]:
    order = "channels_last" if _is_last(x) else "contiguous"
    return name, x.shape, weight.shape, tuple(stride), tuple(padding), x.dtype, order


def _fused(*arguments: Any) -> str:
    return "fused"


relu_depthwise = declare(f"relu_depthwise{_FORWARD}", _relu_forward, _fake)
relu_depthwise_backward = declare(f"relu_depthwise_backward{_BACKWARD}", _relu_backward, _fake_backward)
depthwise = declare(f"depthwise{_FORWARD}", _plain_forward, _fake)
depthwise_backward = declare(f"depthwise_backward{_BACKWARD}", _plain_backward, _fake_backward)
SPECS = (
    OpSpec(relu_depthwise, _relu_forward),
    OpSpec(relu_depthwise_backward, _relu_backward),
    OpSpec(depthwise, _plain_forward),
    OpSpec(depthwise_backward, _plain_backward),
)
