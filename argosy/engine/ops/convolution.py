"""convolution: ATen's, but for few pixels and many weights as one matrix product.

    patches [pixels, k·k·C] × weights [k·k·C, O]         pixels: of all output images together

With few pixels the time goes into the weights, and oneDNN's kernels for that case are slow: 512 to 512 channels,
3x3, on 2x2 pixels, batch 2, backward 52 ms on one core, 4 ms as products. Up to which number of pixels a product
is the faster one was measured (docs/decisions/0011-small-convolutions.md); it is decided at every call, because
the batch may have any size. Both tensors lie in channels_last, so that patches and weights need no reordering.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from argosy.engine.ops.spec import OpSpec, declare

aten = torch.ops.aten
_MOST_PIXELS = 128
LEAST_WEIGHTS = 200_000
"""Smaller convolutions are over before the choice pays."""
Sizes = list[int]


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
    rows, columns = _output(x, weight, stride, padding)
    if x.shape[0] * rows * columns > _MOST_PIXELS:
        made: Tensor = aten.convolution.default(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return made
    patches, kernels = _patches(x, weight, stride, padding, rows, columns), _as_matrix(weight)
    found = patches @ kernels.t() if bias is None else torch.addmm(bias, patches, kernels.t())
    return found.view(x.shape[0], rows, columns, weight.shape[0]).permute(0, 3, 1, 2)


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
    count, outputs, rows, columns = grad.shape
    if count * rows * columns > _MOST_PIXELS:
        made: tuple[Any, ...] = aten.convolution_backward.default(
            grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, wanted
        )
        return made
    flat = grad.permute(0, 2, 3, 1).reshape(-1, outputs)
    of_input = of_weight = of_bias = None
    if wanted[0]:
        of_input = _from_patches(flat @ _as_matrix(weight), x, weight, stride, padding, rows, columns)
    if wanted[1]:
        patches = _patches(x, weight, stride, padding, rows, columns)
        height, width = weight.shape[2:]
        of_weight = (flat.t() @ patches).view(outputs, height, width, x.shape[1]).permute(0, 3, 1, 2)
    if wanted[2]:
        of_bias = flat.sum(0)
    return of_input, of_weight, of_bias


def _output(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> tuple[int, int]:
    rows, columns = ((x.shape[2 + i] + 2 * padding[i] - weight.shape[2 + i]) // stride[i] + 1 for i in (0, 1))
    return rows, columns


def _as_matrix(weight: Tensor) -> Tensor:
    """[O, C, h, w] in channels_last as [O, h·w·C]: no copy."""
    return weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)


def _patches(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, rows: int, columns: int) -> Tensor:
    """What each output pixel sees, a row for each."""
    count, channels = x.shape[:2]
    height, width = weight.shape[2:]
    (down, right), last = padding, x.permute(0, 2, 3, 1)
    image = F.pad(last, (0, 0, right, right, down, down)) if down or right else last
    of_image, of_row, of_column, of_channel = image.stride()
    steps = (of_image, of_row * stride[0], of_column * stride[1], of_row, of_column, of_channel)
    seen = image.as_strided((count, rows, columns, height, width, channels), steps, image.storage_offset())
    return seen.reshape(count * rows * columns, height * width * channels)  # not -1: a batch may be empty


def _from_patches(
    patches: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, rows: int, columns: int
) -> Tensor:
    """Add each pixel's patch to where it was taken from."""
    count, channels, image_rows, image_columns = x.shape
    height, width = weight.shape[2:]
    down, right = padding
    if height == width == 1 and stride == [1, 1] and not (down or right):
        return patches.view(count, rows, columns, channels).permute(0, 3, 1, 2)
    seen = patches.view(count, rows, columns, height, width, channels)
    image = patches.new_zeros((count, image_rows + 2 * down, image_columns + 2 * right, channels))
    for i in range(height):
        for j in range(width):
            last_row, last_column = i + stride[0] * rows, j + stride[1] * columns
            image[:, i : last_row : stride[0], j : last_column : stride[1]].add_(seen[:, :, :, i, j])
    inside = image[:, down : down + image_rows, right : right + image_columns]
    return inside.contiguous().permute(0, 3, 1, 2)


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
