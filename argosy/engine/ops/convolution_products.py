"""A convolution and its gradients as matrix products; all tensors are channels_last.

    y    [pixels, O]    =  patches [pixels, k·k·C]  ×  weights [k·k·C, O]      pixels: of all output images
    dx                  ←  dy [pixels, O]           ×  weights [O, k·k·C]      summed where the patches overlap
    dw   [O, k·k·C]     =  dy [O, pixels]           ×  patches [pixels, k·k·C]

For 1x1 with stride 1 the patches are the image itself, without a copy. In bfloat16 torch's products accumulate in
float32 and round once; sums of several products are float32, too, and rounded at the end.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

Sizes = list[int]
# The weight gradient unfolds at most this many bytes of patches at a time. Smaller pieces fit the caches better, but
# every piece is one more parallel region, which is expensive as soon as another process competes for the cores.
_MAX_PATCH_BYTES = 32 << 20


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes) -> Tensor:
    """The convolution itself."""
    rows, columns = output_size(x, weight, stride, padding)
    patches, kernels = _patches(x, weight, stride, padding, rows, columns), _as_matrix(weight)
    product = patches @ kernels.t() if bias is None else torch.addmm(bias, patches, kernels.t())
    return product.view(x.shape[0], rows, columns, weight.shape[0]).permute(0, 3, 1, 2)


def of_input(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    """The gradient of the input."""
    rows, columns = grad.shape[2:]
    return _from_patches(_by_pixel(grad) @ _as_matrix(weight), x, weight, stride, padding, rows, columns)


def of_weight(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    """The gradient of the weights."""
    pieces = _pieces(grad, x, weight, stride, padding)
    return _as_weight(_sum_of_products((flat.t(), patches) for flat, patches in pieces), weight)


def of_weight_transposed(grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
    """The same, computed as [k·k·C, O] and transposed at the end: a better shape for MKL if there are few outputs."""
    pieces = _pieces(grad, x, weight, stride, padding)
    total = _sum_of_products((patches.t(), flat) for flat, patches in pieces)
    return _as_weight(total.t().contiguous(), weight)


def _sum_of_products(pairs: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
    """a × b, added up over at least one pair; 16-bit products in float32."""
    a, b = next(pairs)
    total = a @ b
    for a, b in pairs:
        total = total.addmm_(a, b) if a.dtype is torch.float32 else total.float().add_(a @ b)
    return total.to(a.dtype)


def output_size(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> tuple[int, int]:
    """Rows and columns of the output."""
    rows, columns = ((x.shape[2 + i] + 2 * padding[i] - weight.shape[2 + i]) // stride[i] + 1 for i in (0, 1))
    return rows, columns


def _as_matrix(weight: Tensor) -> Tensor:
    """[O, C, h, w] in channels_last as [O, h·w·C]: no copy."""
    return weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)


def _as_weight(matrix: Tensor, weight: Tensor) -> Tensor:
    outputs, channels, height, width = weight.shape
    return matrix.view(outputs, height, width, channels).permute(0, 3, 1, 2)


def _by_pixel(grad: Tensor) -> Tensor:
    count, outputs, rows, columns = grad.shape
    return grad.permute(0, 2, 3, 1).reshape(count * rows * columns, outputs)


def _pieces(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes
) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradient and the patches of a few images at a time; at least one piece."""
    count, _, rows, columns = grad.shape
    size = max(1, rows * columns * weight[0].numel() * x.element_size())
    step = max(count, 1) if _is_matrix_already(weight, stride, padding) else max(1, _MAX_PATCH_BYTES // size)
    for first in range(0, max(count, 1), step):
        images = x[first : first + step]
        yield _by_pixel(grad[first : first + step]), _patches(images, weight, stride, padding, rows, columns)


def _is_matrix_already(weight: Tensor, stride: Sizes, padding: Sizes) -> bool:
    """True for 1x1 with stride 1 and no padding: the image itself is the matrix of patches."""
    return weight.shape[2] == weight.shape[3] == 1 and stride == [1, 1] and padding == [0, 0]


def _patches(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, rows: int, columns: int) -> Tensor:
    """The input window of each output pixel, one row per pixel (im2col)."""
    count, channels = x.shape[:2]
    height, width = weight.shape[2:]
    (down, right), last = padding, x.permute(0, 2, 3, 1)
    image = F.pad(last, (0, 0, right, right, down, down)) if down or right else last
    of_image, of_row, of_column, of_channel = image.stride()
    steps = (of_image, of_row * stride[0], of_column * stride[1], of_row, of_column, of_channel)
    windows = image.as_strided((count, rows, columns, height, width, channels), steps, image.storage_offset())
    return windows.reshape(count * rows * columns, height * width * channels)  # not -1: a batch may be empty


def _from_patches(
    patches: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, rows: int, columns: int
) -> Tensor:
    """Add each patch to the pixels that it was taken from (col2im)."""
    count, channels, image_rows, image_columns = x.shape
    height, width = weight.shape[2:]
    if _is_matrix_already(weight, stride, padding):
        return patches.view(count, rows, columns, channels).permute(0, 3, 1, 2)
    down, right = padding
    windows = patches.view(count, rows, columns, height, width, channels)
    sizes = (count, image_rows + 2 * down, image_columns + 2 * right, channels)
    image = patches.new_zeros(sizes, dtype=torch.float32)
    for i in range(height):
        for j in range(width):
            last_row, last_column = i + stride[0] * rows, j + stride[1] * columns
            image[:, i : last_row : stride[0], j : last_column : stride[1]].add_(windows[:, :, :, i, j])
    inside = image[:, down : down + image_rows, right : right + image_columns]
    return inside.to(patches.dtype).contiguous().permute(0, 3, 1, 2)
