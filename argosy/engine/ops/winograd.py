"""3x3 convolutions with stride 1 by Winograd's algorithm, an alternative of kernel search.

    winograd2    F(2x2, 3x3)    2.25 times fewer multiplications than a direct convolution
    winograd4    F(4x4, 3x3)    4 times fewer; the error is about ten times that of a direct convolution

Forward and both gradients; float32, channels_last. kernels/source/winograd.cpp has the loops.
`ARGOSY_WINOGRAD` is the largest tile that may be used: 4, 2, or 0 for none. docs/how-to/kernel-search.md has the error
bounds.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
from ctypes import c_int, c_int64

import torch
from torch import Tensor

from argosy.engine import env, kernels
from argosy.engine.errors import ConfigError
from argosy.engine.kernels.signatures import WINOGRAD, WINOGRAD_OF_WEIGHT

Sizes = list[int]
TILES = (2, 4)
_MULTIPLE = 32
"""The kernel computes whole vectors of channels."""
_MAX_SUMS_BYTES = 128 << 20
"""The gradient of the weights needs its sums once per thread."""


def forward(
    tile: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes
) -> Tensor:
    """The convolution itself."""
    y = _run(tile, x, weight, padding, weight.shape[0])
    return y if bias is None else y.add_(bias.view(1, -1, 1, 1))


def of_input(tile: int, grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    """The gradient of the input: a convolution of `grad` with the rotated weights."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    return _run(tile, grad, weight, [2 - padding[0], 2 - padding[1]], weight.shape[1], is_rotated=True)


def of_weight(tile: int, grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    """The gradient of the weights."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    dweight = torch.empty_like(weight, memory_format=torch.channels_last)
    threads = torch.get_num_threads()
    sums = x.new_empty(_sums(tile, weight))
    sizes = (c_int64 * 9)(*x.shape, *grad.shape[1:], *padding)
    WINOGRAD_OF_WEIGHT((x, grad, sums, dweight), sizes, c_int(tile), c_int(threads))
    return dweight


def largest_weight_tile(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> int:
    """The same as largest_tile for the gradient of the weights."""
    tile = largest_tile(x, weight, stride, padding)
    return max((n for n in TILES if n <= tile and 4 * _sums(n, weight) <= _MAX_SUMS_BYTES), default=0)


def _sums(tile: int, weight: Tensor) -> int:
    return (tile + 2) ** 2 * weight.shape[0] * weight.shape[1] * torch.get_num_threads()


def largest_tile(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> int:
    """The largest tile that may be used for this convolution; 0 if the kernel does not support it."""
    if (
        (x.dtype, weight.dtype) != (torch.float32, torch.float32)
        or weight.shape[2:] != (3, 3)
        or stride != [1, 1]
        or max(padding) > 2
        or weight.shape[0] % _MULTIPLE
        or weight.shape[1] % _MULTIPLE
        or x.shape[0] == 0
        or min(x.shape[2] + 2 * padding[0], x.shape[3] + 2 * padding[1]) < 3
    ):
        return 0
    return _allowed() if kernels.are_ready(waits=False) else 0


@functools.cache
def _allowed() -> int:
    text = env.text("ARGOSY_WINOGRAD", "4")
    if text not in ("0", "2", "4"):
        raise ConfigError(
            f"ARGOSY_WINOGRAD={text!r} is no tile of Winograd's algorithm; use 4, 2, or 0 for none"
        )
    return int(text)


def _run(
    tile: int, x: Tensor, weight: Tensor, padding: Sizes, outputs: int, is_rotated: bool = False
) -> Tensor:
    images, channels, height, width = x.shape
    rows, columns = height + 2 * padding[0] - 2, width + 2 * padding[1] - 2
    y = x.new_empty((images, rows, columns, outputs)).permute(0, 3, 1, 2)
    points = x.new_empty((tile + 2) ** 2 * channels * outputs)
    sizes = (c_int64 * 9)(images, channels, height, width, outputs, rows, columns, *padding)
    WINOGRAD((x, weight, points, y), sizes, c_int(tile), c_int(is_rotated))
    return y
