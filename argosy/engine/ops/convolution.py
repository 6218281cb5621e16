"""convolution: ATen's kernels, matrix products or Winograd's algorithm, whichever is faster for the sizes of the call.

oneDNN is near the machine's peak in forward and in the input gradient, but not in the weight gradient, nor for few
pixels and many weights. The rules below were measured on ResNet50's shapes (docs/decisions/0017-kernel-search.md); a
search on the user's machine replaces them (docs/how-to/kernel-search.md). They hold for float32; the larger tile of
Winograd's algorithm, whose error is larger, is for the search only. In bfloat16 ATen's
kernels run unless a search finds a faster one, with an exception: on a CPU without 16-bit arithmetic ATen adds up the
weight gradients of the images in bfloat16, so there the product runs, which accumulates in float32. The kernel is
chosen at every call, because the batch size may vary. Input and weights are channels_last.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels.choices import best
from argosy.engine.ops import convolution_products as products
from argosy.engine.ops import winograd
from argosy.engine.ops.convolution_products import Sizes, output_size
from argosy.engine.ops.op_spec import OpSpec, declare

aten = torch.ops.aten
_aten_backward = aten.convolution_backward.default
FEW_PIXELS = 128
MANY_WEIGHTS = 200_000
"""Few pixels and many weights: matrix products are faster in all three parts."""
_WINOGRAD_WEIGHTS = 128 * 128 * 9
_WINOGRAD_GRADIENTS = 256 * 256 * 9
"""Up to so many weights F(2x2) was faster than all others but F(4x4), on AVX2 and AVX-512 (docs/decisions/0033)."""
_MAX_PATCHES = 2048
"""Above this number of pixels oneDNN was always faster in forward and in the input gradient, except for 1x1."""


def _rest(stride: Sizes, padding: Sizes) -> tuple[Any, ...]:
    return stride, padding, [1, 1], False, [0, 0], 1


def _aten(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes) -> Tensor:
    y: Tensor = aten.convolution.default(x, weight, bias, *_rest(stride, padding))
    return y


def _aten_of_input(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    dx: Tensor = _aten_backward(grad, x, weight, None, *_rest(stride, padding), [True, False, False])[0]
    return dx


def _aten_of_weight(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    dweight: Tensor = _aten_backward(grad, x, weight, None, *_rest(stride, padding), [False, True, False])[1]
    return dweight


Kernels = dict[str, Callable[..., Tensor]]


def _winograd(kernel: Callable[..., Tensor]) -> Kernels:
    return {f"winograd{tile}": partial(kernel, tile) for tile in winograd.TILES}


FORWARD: Kernels = {"aten": _aten, "product": products.forward, **_winograd(winograd.forward)}
OF_INPUT: Kernels = {"aten": _aten_of_input, "product": products.of_input, **_winograd(winograd.of_input)}
OF_WEIGHT: Kernels = {
    "aten": _aten_of_weight,
    "product": products.of_weight,
    "transposed": products.of_weight_transposed,
    **_winograd(winograd.of_weight),
}


def forward_rule(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes) -> str:
    """The kernel of forward if there was no search."""
    rows, columns = output_size(x, weight, stride, padding)
    return _rule(x.shape[0] * rows * columns, x, weight, stride, padding)


def of_input_rule(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> str:
    """The kernel of the input gradient if there was no search."""
    return _rule(_pixels(grad), x, weight, stride, padding)


def _rule(pixels: int, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> str:
    if x.dtype is not torch.float32:
        return "aten"
    if pixels <= FEW_PIXELS and weight.numel() >= MANY_WEIGHTS:
        return "product"
    is_light = weight.numel() <= _WINOGRAD_WEIGHTS and winograd.largest_tile(x, weight, stride, padding) >= 2
    return "winograd2" if is_light else "aten"


def of_weight_rule(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> str:
    """The kernel of the weight gradient without a search: from 64 channels on products, 1.1 to 2 times as fast, or
    Winograd's algorithm."""
    outputs, channels, height, width = weight.shape
    if x.dtype is torch.bfloat16:
        return "aten" if _has_bf16_convolutions() else "product"
    if min(outputs, channels) < 64:
        return "aten"
    if (
        weight.numel() <= _WINOGRAD_GRADIENTS
        and winograd.largest_weight_tile(x, weight, stride, padding) >= 2
    ):
        return "winograd2"
    if height == width == 1:
        return "product" if _pixels(grad) <= 8192 or stride != [1, 1] else "aten"
    return "transposed" if weight.numel() < 400_000 else "product"


@cache
def _has_bf16_convolutions() -> bool:
    """True if oneDNN has bfloat16 convolutions for this CPU."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


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
    kernels = alternatives(FORWARD, x.shape[0] * rows * columns, x, weight, stride, padding)
    if len(kernels) == 1:
        return _aten(*arguments)
    chosen = best(_key("conv2d", x, weight, stride, padding), kernels, arguments, forward_rule)
    return kernels[chosen](*arguments)


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
    if wanted[0]:
        kernels = alternatives(OF_INPUT, _pixels(grad), x, weight, stride, padding)
        if len(kernels) > 1:
            key = _key("conv2d_grad input", x, weight, stride, padding)
            input_by = best(key, kernels, arguments, of_input_rule)
    if wanted[1]:
        key = _key("conv2d_grad weight", x, weight, stride, padding)
        weight_by = best(key, weight_alternatives(x, weight, stride, padding), arguments, of_weight_rule)
    gradients: list[Any] = [None, None, None]
    mask = [wanted[0] and input_by == "aten", wanted[1] and weight_by == "aten", False]
    mask[2] = wanted[2] and mask[1]  # ATen computes it along with the weight gradient
    if any(mask):
        gradients = list(_aten_backward(grad, x, weight, bias_sizes, *_rest(stride, padding), mask))
    if input_by != "aten":
        gradients[0] = OF_INPUT[input_by](*arguments)
    if weight_by != "aten":
        gradients[1] = OF_WEIGHT[weight_by](*arguments)
    if wanted[2] and not mask[2]:
        gradients[2] = grad.sum((0, 2, 3))
    return tuple(gradients)


def alternatives(
    kernels: Kernels, pixels: int, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes
) -> Kernels:
    """Those of the kernels of forward or of the input gradient that may be the fastest for these sizes."""
    may_be_product = pixels <= _MAX_PATCHES or weight.shape[2] == weight.shape[3] == 1
    tile = winograd.largest_tile(x, weight, stride, padding)
    names = [f"winograd{n}" for n in winograd.TILES if n <= tile]
    return {n: kernels[n] for n in ("aten", *(["product"] if may_be_product else []), *names)}


def weight_alternatives(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Kernels:
    """The same for the weight gradient."""
    tile = winograd.largest_weight_tile(x, weight, stride, padding)
    excluded = {f"winograd{n}" for n in winograd.TILES if n > tile}
    return {name: kernel for name, kernel in OF_WEIGHT.items() if name not in excluded}


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
SPEC = OpSpec(convolution, _convolution)
BACKWARD_SPEC = OpSpec(convolution_backward, _backward)
