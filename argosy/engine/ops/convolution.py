"""convolution: ATen's kernels or matrix products, whichever is the faster one for the sizes at hand.

oneDNN is near the machine's peak forward and in the gradient of the input, but not in the gradient of the weights, nor
where there are few pixels and many weights. What is faster was measured on ResNet50's shapes and stands here as rules
(docs/decisions/0017-kernel-search.md); a search on the user's machine replaces them (docs/kernel_search.md). It is
decided at every call, because a batch may have any size. Input and weights lie in channels_last.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels.choices import best
from argosy.engine.ops import convolution_products as products
from argosy.engine.ops.convolution_products import Sizes, output_size
from argosy.engine.ops.spec import OpSpec, declare

aten = torch.ops.aten
_aten_backward = aten.convolution_backward.default
FEW_PIXELS = 128
MANY_WEIGHTS = 200_000
"""Few pixels and many weights: the products win in all three parts."""
_MOST_PATCHES = 2048
"""Above so many pixels oneDNN always won forward and in the gradient of the input, but for 1x1."""


def _rest(stride: Sizes, padding: Sizes) -> tuple[Any, ...]:
    return stride, padding, [1, 1], False, [0, 0], 1


def _aten(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes) -> Tensor:
    made: Tensor = aten.convolution.default(x, weight, bias, *_rest(stride, padding))
    return made


def _aten_of_input(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    made: Tensor = _aten_backward(grad, x, weight, None, *_rest(stride, padding), [True, False, False])[0]
    return made


def _aten_of_weight(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    made: Tensor = _aten_backward(grad, x, weight, None, *_rest(stride, padding), [False, True, False])[1]
    return made


FORWARD = {"aten": _aten, "product": products.forward}
OF_INPUT = {"aten": _aten_of_input, "product": products.of_input}
OF_WEIGHT = {"aten": _aten_of_weight, "product": products.of_weight, "turned": products.of_weight_turned}


def forward_rule(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes) -> str:
    """Forward without a search."""
    rows, columns = output_size(x, weight, stride, padding)
    is_small = x.shape[0] * rows * columns <= FEW_PIXELS and weight.numel() >= MANY_WEIGHTS
    return "product" if is_small else "aten"


def of_input_rule(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> str:
    """The gradient of the input without a search."""
    is_small = _pixels(grad) <= FEW_PIXELS and weight.numel() >= MANY_WEIGHTS
    return "product" if is_small else "aten"


def of_weight_rule(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> str:
    """The gradient of the weights without a search: from 64 channels on products, 1.1 to 2 times as fast."""
    outputs, channels, height, width = weight.shape
    if min(outputs, channels) < 64:
        return "aten"
    if height == width == 1:
        return "product" if _pixels(grad) <= 8192 or stride != [1, 1] else "aten"
    return "turned" if weight.numel() < 400_000 else "product"


def _pixels(grad: Tensor) -> int:
    return grad.shape[0] * grad.shape[2] * grad.shape[3]


def _key(name: str, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> tuple[Hashable, ...]:
    return name, x.shape, weight.shape, tuple(stride), tuple(padding), x.dtype, "channels_last"


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    rows, columns = output_size(x, weight, stride, padding)
    arguments = (x, weight, bias, stride, padding)
    if not _may_be_product(x.shape[0] * rows * columns, weight):
        return _aten(*arguments)
    chosen = best(_key("conv2d", x, weight, stride, padding), FORWARD, arguments, forward_rule)
    return FORWARD[chosen](*arguments)


def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    wanted: list[bool],
) -> tuple[Any, ...]:
    arguments = (grad, x, weight, stride, padding)
    input_by = weight_by = "aten"
    if wanted[0] and _may_be_product(_pixels(grad), weight):
        key = _key("conv2d_grad input", x, weight, stride, padding)
        input_by = best(key, OF_INPUT, arguments, of_input_rule)
    if wanted[1]:
        key = _key("conv2d_grad weight", x, weight, stride, padding)
        weight_by = best(key, OF_WEIGHT, arguments, of_weight_rule)
    found: list[Any] = [None, None, None]
    mask = [wanted[0] and input_by == "aten", wanted[1] and weight_by == "aten", False]
    mask[2] = wanted[2] and mask[1]  # ATen has it from the same run
    if any(mask):
        found = list(_aten_backward(grad, x, weight, bias_sizes, *_rest(stride, padding), mask))
    if input_by != "aten":
        found[0] = OF_INPUT[input_by](*arguments)
    if weight_by != "aten":
        found[1] = OF_WEIGHT[weight_by](*arguments)
    if wanted[2] and not mask[2]:
        found[2] = grad.sum((0, 2, 3))
    return tuple(found)


def _may_be_product(pixels: int, weight: Tensor) -> bool:
    """Whether forward and the gradient of the input have a choice."""
    return pixels <= _MOST_PATCHES or weight.shape[2] == weight.shape[3] == 1


_WINDOW = (
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
    "SymInt groups"
)
convolution = declare(
    f"convolution(Tensor x, Tensor weight, Tensor? bias, {_WINDOW}) -> Tensor",
    _convolution,
    aten.convolution.default,
)
convolution_backward = declare(
    f"convolution_backward(Tensor grad, Tensor x, Tensor weight, SymInt[]? bias_sizes, {_WINDOW}, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _backward,
    aten.convolution_backward.default,
)
SPEC = OpSpec(convolution, _convolution, "conv2d")
BACKWARD_SPEC = OpSpec(convolution_backward, _backward, "conv2d_grad")
