"""Layers of many kinds: linear, dropout, padding, resizing, similarity."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.engine.ir import lowering
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.random import dropout_mask
from argosy.framework.variant import variant
from argosy.nn.functional.layout import FORMATS, channels_back, channels_first, is_channels_last, per_axis
from argosy.tensor.arguments import axes, sizes


def linear(x: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None) -> Any:
    """x @ weight + bias; the weight is [in, out], as in Paddle."""

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if bias is None or x.ndim == 1 or bias.ndim > 1:
            out = torch.matmul(x, weight)
            return out if bias is None else out + bias
        out = torch.addmm(bias, x.flatten(0, -2), weight)  # as F.linear: one op, which amp runs in 16 bits
        return out if x.ndim == 2 else out.reshape(*x.shape[:-1], weight.shape[1])

    return apply("linear", product, x, weight, bias, name=name)


def bilinear(
    x1: Variable, x2: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None
) -> Any:
    """x1 @ weight[k] @ x2 for every k; the weight is [out, in1, in2], the bias [1, out]."""

    def product(
        x1: torch.Tensor, x2: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        return F.bilinear(x1, x2, weight, None if bias is None else bias.reshape(-1))

    return apply("bilinear", product, x1, x2, weight, bias, name=name)


# --- dropout ------------------------------------------------------------------------------------------------


def dropout(
    x: Variable,
    p: float = 0.5,
    axis: int | Sequence[int] | None = None,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
    *,
    seed: int = 0,
) -> Any:
    """x with each element zero with probability p; `program.clone(for_test=True)` removes it.

    `axis`: one draw for all elements that differ in other axes only. "upscale_in_train" divides the remaining
    elements by 1 - p; "downscale_in_infer" multiplies by 1 - p when testing instead. With a `seed` other than 0 the
    same elements are zero in every run.
    """
    if not 0 <= p <= 1:
        raise ConfigError(f"dropout: p={p} is no probability; use 0 to 1")
    if mode not in ("upscale_in_train", "downscale_in_infer"):
        raise ConfigError(
            f"dropout: mode={mode!r} is not known; use 'upscale_in_train' or 'downscale_in_infer'"
        )
    drawn = None if axis is None else axes("dropout", axis, x.ndim)
    later = 1.0 if mode == "upscale_in_train" else 1.0 - p

    def dropped(x: torch.Tensor) -> torch.Tensor:
        if not training or (drawn is None and not seed):
            out = lowering.dropout(x, p, training)
        else:
            sizes = [size if drawn is None or dim in drawn else 1 for dim, size in enumerate(x.shape)]
            ones = x.new_ones(sizes)
            out = x * (dropout_mask(ones, p, seed) if seed else lowering.dropout(ones, p))
        return out if later == 1.0 else out * later

    return apply("dropout", dropped, x, name=name)


def dropout2d(
    x: Variable, p: float = 0.5, training: bool = True, data_format: str = "NCHW", name: str | None = None
) -> Any:
    """Dropout of whole channels of images."""
    last = is_channels_last("dropout2d", data_format, 2)
    return dropout(x, p, [0, 3] if last else [0, 1], training, name=name)


def dropout3d(
    x: Variable, p: float = 0.5, training: bool = True, data_format: str = "NCDHW", name: str | None = None
) -> Any:
    """Dropout of whole channels of volumes."""
    last = is_channels_last("dropout3d", data_format, 3)
    return dropout(x, p, [0, 4] if last else [0, 1], training, name=name)


# --- padding and resizing -----------------------------------------------------------------------------------


def pad(
    x: Variable,
    pad: Any,
    mode: str = "constant",
    value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """x with a border: of `value`, or "reflect", "replicate" or "circular".

    `pad` starts with the last spatial axis: [left, right, top, bottom, …], or is one number for all sides.
    With two numbers for every axis of x (constant mode only) it begins with the first axis.
    """
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ConfigError(f"pad: mode={mode!r} is not known; use constant, reflect, replicate or circular")
    around = [int(size) for size in sizes("pad", pad)]
    around = around * 2 * (x.ndim - 2) if isinstance(pad, int) else around
    if len(around) == 2 * x.ndim and mode == "constant":
        backwards = [size for dim in reversed(range(x.ndim)) for size in around[2 * dim : 2 * dim + 2]]
        return apply("pad", F.pad, x, backwards, value=value, name=name)
    if len(around) % 2 or len(around) > 2 * (x.ndim - 2):
        raise ConfigError(
            f"pad: {pad} has {len(around)} numbers for {x.ndim} axes; give two for each spatial axis"
        )
    if data_format not in [name for pair in FORMATS.values() for name in pair]:
        raise ConfigError(
            f"pad: data_format={data_format!r} is not known; use NCHW or NHWC, NCL, NLC, NCDHW, NDHWC"
        )
    last = data_format[-1] == "C"
    if mode != "constant":
        around += [0] * (2 * (x.ndim - 2) - len(around))
        value = 0.0

    def padded(x: torch.Tensor) -> torch.Tensor:
        return channels_back(F.pad(channels_first(x, last), around, mode, value), last)

    return apply("pad", padded, x, name=name)


_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


def interpolate(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """x resized to `size`, or by `scale_factor`: nearest, linear, bilinear, trilinear, bicubic or area.

    `align_mode=1`, Paddle's other place for the centre of a pixel, is not supported.
    """
    mode = mode.lower()
    if mode not in ("nearest", "bicubic", "area", *_LINEAR):
        raise ConfigError(f"interpolate: mode={mode!r} is not known; use nearest, bilinear, bicubic, area, …")
    if (size is None) == (scale_factor is None):
        raise ConfigError(f"interpolate: size={size}, scale_factor={scale_factor}; give one of the two")
    if align_mode == 1 and mode in _LINEAR and not align_corners:
        raise UnsupportedError(f"interpolate: align_mode=1 is not supported with {mode}; use align_mode=0")
    if align_corners and mode in ("nearest", "area"):
        raise ConfigError(f"interpolate: align_corners has no meaning with mode={mode!r}; leave it out")
    spatial = x.ndim - 2
    last = data_format != "NCHW" and is_channels_last("interpolate", data_format, spatial)
    wanted = None if size is None else per_axis("interpolate: size", size, spatial)
    corners = align_corners if mode in ("bicubic", *_LINEAR) else None

    def resized(x: torch.Tensor) -> torch.Tensor:
        out = F.interpolate(channels_first(x, last), wanted, scale_factor, mode, corners)
        return channels_back(out, last)

    return apply("interpolate", resized, x, name=name)


@variant(interpolate)
def upsample() -> Any:
    """The same as interpolate."""


def unfold(
    x: Variable,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Any:
    """The windows of images as columns: [N, C * height * width of a window, number of windows].

    `paddings`: one number, [height, width], or [top, left, bottom, right].
    """
    around = [int(size) for size in sizes("unfold: paddings", paddings)]
    top, left, bottom, right = around if len(around) == 4 else per_axis("unfold: paddings", around, 2) * 2
    kernel, steps, gaps = (
        tuple(per_axis(f"unfold: {what}", value, 2))
        for what, value in (("kernel_sizes", kernel_sizes), ("strides", strides), ("dilations", dilations))
    )

    def unfolded(x: torch.Tensor) -> torch.Tensor:
        return F.unfold(F.pad(x, [left, right, top, bottom]), kernel, gaps, 0, steps)

    return apply("unfold", unfolded, x, name=name)


def pixel_shuffle(
    x: Variable, upscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Any:
    """Rearrange channels into a finer grid: [N, C * r * r, H, W] to [N, C, H * r, W * r]."""
    last = is_channels_last("pixel_shuffle", data_format, 2)

    def shuffled(x: torch.Tensor) -> torch.Tensor:
        return channels_back(F.pixel_shuffle(channels_first(x, last), upscale_factor), last)

    return apply("pixel_shuffle", shuffled, x, name=name)


# --- similarity and labels ----------------------------------------------------------------------------------


def cosine_similarity(x1: Variable, x2: Variable, axis: int = 1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x1 and x2 along an axis; |x1| * |x2| is at least eps."""

    def cosine(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        lengths = (x1 * x1).sum(axis) * (x2 * x2).sum(axis)
        return (x1 * x2).sum(axis) / lengths.clamp(min=eps * eps).sqrt()

    return apply("cosine_similarity", cosine, x1, x2)


def normalize(
    x: Variable, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None
) -> Any:
    """x divided by its p-norm along an axis, or by epsilon if the norm is smaller."""
    return apply("normalize", F.normalize, x, p, axis, epsilon, name=name)


def label_smooth(
    label: Variable, prior_dist: Variable | None = None, epsilon: float = 0.1, name: str | None = None
) -> Any:
    """(1 - epsilon) * label + epsilon * prior_dist; without a prior all classes are equally likely."""

    def smoothed(label: torch.Tensor, prior: torch.Tensor | None) -> torch.Tensor:
        return (1 - epsilon) * label + epsilon * (1 / label.shape[-1] if prior is None else prior)

    return apply("label_smooth", smoothed, label, prior_dist, name=name)
