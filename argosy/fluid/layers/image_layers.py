"""Layers of 1.x for images and their channels."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers.pool import image_resize
from argosy.framework.layer import LayerBuilder, apply
from argosy.nn.functional import common, extension, vision
from argosy.nn.functional import norm as functional


def pad2d(
    input: Variable,
    paddings: Sequence[int] = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Images with a border of [top, bottom, left, right]: "constant", "reflect" or "edge"."""
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
    if mode not in modes or len(paddings) != 4:
        raise ConfigError(
            f"pad2d: mode={mode!r}, paddings={paddings}; use {' or '.join(modes)}, and four numbers"
        )
    top, bottom, left, right = paddings
    return common.pad(input, [left, right, top, bottom], modes[mode], pad_value, data_format, name)


def _resize(
    kind: str,
    mode: str,
    formats: dict[str, str],
    input: Variable,
    out_shape: Any,
    scale: Any,
    align_corners: bool,
    align_mode: int,
    data_format: str,
    name: str | None,
) -> Any:
    if data_format not in formats:
        raise ConfigError(f"{kind}: data_format={data_format!r} is not known; use {' or '.join(formats)}")
    factor = scale if out_shape is None else None
    return common.interpolate(
        input, out_shape, factor, mode, align_corners, align_mode, formats[data_format], name
    )


def resize_linear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCW",
) -> Any:
    """[N, C, W] of another width; align_mode=1 needs align_corners."""
    _no_actual_shape("resize_linear", actual_shape)
    formats = {"NCW": "NCL", "NWC": "NLC"}
    plan = (input, out_shape, scale, align_corners, align_mode, data_format, name)
    return _resize("resize_linear", "linear", formats, *plan)


def resize_trilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Any:
    """[N, C, D, H, W] of another size; align_mode=1 needs align_corners."""
    _no_actual_shape("resize_trilinear", actual_shape)
    formats = {"NCDHW": "NCDHW", "NDHWC": "NDHWC"}
    plan = (input, out_shape, scale, align_corners, align_mode, data_format, name)
    return _resize("resize_trilinear", "trilinear", formats, *plan)


def _no_actual_shape(kind: str, actual_shape: Any) -> None:
    if actual_shape is not None:
        raise ConfigError(f"{kind}: actual_shape is known only at run time; use out_shape or scale")


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Any:
    """Images [N, C, H, W] whose shorter side gets out_short_len, with the same aspect ratio."""
    height, width = input.shape[2:]
    if height < 0 or width < 0:
        raise ConfigError(
            f"image_resize_short: {input.name!r} has shape {list(input.shape)}; height and width must be known"
        )
    short = min(height, width)
    size = [int(side * (out_short_len / short) + 0.5) for side in (height, width)]
    return image_resize(input, size, resample=resample)


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Any:
    """x / (k + alpha · sum of the squares of n neighbouring channels) ** beta."""

    return functional.local_response_norm(input, n, alpha * n, beta, k, data_format, name)


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Any:
    """scale · x + bias with one number for each channel."""
    layer = LayerBuilder("affine_channel", name)
    last = data_layout == "NHWC"
    if data_layout not in ("NCHW", "NHWC"):
        raise ConfigError(f"affine_channel: data_layout={data_layout!r} is not known; use NCHW or NHWC")

    def scaled(x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
        shape = [-1] if last else [-1, *[1] * (x.ndim - 2)]
        out = x if scale is None else x * scale.reshape(shape)
        return out if bias is None else out + bias.reshape(shape)

    return layer.activate(layer.run(scaled, x, scale, bias), act)


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Any:
    """The channels of each of `group` groups in turn, as in ShuffleNet."""
    if group < 1 or x.shape[1] % group:
        raise ConfigError(f"shuffle_channel: {x.shape[1]} channels do not divide into {group} groups")
    return apply(
        "shuffle_channel", lambda v: v.unflatten(1, (group, -1)).transpose(1, 2).flatten(1, 2), x, name=name
    )


def fsp_matrix(x: Variable, y: Variable) -> Any:
    """The products of channels, [N, C of x, C of y], divided by height · width."""

    def products(x: Tensor, y: Tensor) -> Tensor:
        return x.flatten(2) @ y.flatten(2).mT / (x.shape[2] * x.shape[3])

    return apply("fsp", products, x, y)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Any:
    """alpha · x + beta · (sin of the step in the first half of [N, steps, D], cos in the second half)."""
    width = input.shape[-1]
    if input.ndim != 3 or width % 2:
        raise ConfigError(
            f"add_position_encoding: shape {list(input.shape)}; give [N, steps, D] with an even D"
        )

    def encoded(x: Tensor) -> Tensor:
        half = width // 2
        step = torch.arange(x.shape[1], dtype=torch.float64).unsqueeze(1)
        power = (
            torch.arange(half, dtype=torch.float64) / (half - 1)
            if half > 1
            else torch.ones(1, dtype=torch.float64)
        )
        angle = step / 10000.0**power
        return alpha * x + beta * torch.cat([angle.sin(), angle.cos()], 1).to(x.dtype)

    return apply("add_position_encoding", encoded, input, name=name)


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Any:
    """Images at the points of the grid [N, H, W, 2], bilinear; 0 outside of the image."""
    return vision.grid_sample(x, grid, name=name)


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Any:
    """The points [N, H, W, 2] of a grid that theta, [N, 2, 3], transforms."""
    return vision.affine_grid(theta, out_shape, name=name)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Any:
    """[N, C · r², H, W] becomes [N, C, H · r, W · r]."""
    return common.pixel_shuffle(x, upscale_factor)


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Any:
    """Move a part of the channels one frame back and as many one frame ahead."""
    return extension.temporal_shift(x, seg_num, shift_ratio, name)


def random_crop(x: Variable, shape: Sequence[int], seed: int | None = None) -> Any:
    """A part of this shape of each sample, at a random place; the shape has one number for each of the last axes."""
    if seed:
        raise ConfigError(f"random_crop: seed={seed} of one layer is not supported; set Program.random_seed")
    wanted, first = list(shape), x.ndim - len(shape)

    def cropped(x: Tensor) -> Tensor:
        for dim, size in enumerate(wanted, first):
            batch = x.shape[:first]
            start = (torch.rand(batch) * (x.shape[dim] - size + 1)).long()
            index = start.reshape(*batch, *[1] * len(wanted)) + torch.arange(size).reshape(
                -1, *[1] * (x.ndim - dim - 1)
            )
            x = x.gather(dim, index.expand(*x.shape[:dim], size, *x.shape[dim + 1 :]))
        return x

    return apply("random_crop", cropped, x)
