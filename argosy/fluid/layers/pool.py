"""Pooling and resizing of images."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import variant
from argosy.nn.functional import common, pooling
from argosy.nn.functional.layout import channels_back, channels_first, is_channels_last, per_axis


def _pool(
    spatial: int,
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Any:
    kind = f"pool{spatial}d"
    layer_name = name or names.generate(kind)
    last = is_channels_last(kind, data_format, spatial)
    if global_pooling:
        over = [axis + (1 if last else 2) for axis in range(spatial)]
        function = _one_of(kind, pool_type, {"max": torch.amax, "avg": torch.mean})
        return apply(kind, lambda x: function(x, over, keepdim=True), input, name=layer_name)
    if pool_size == -1:
        raise ConfigError(f"{kind}: pool_size is missing; give the size of a window, or global_pooling=True")
    pool = _one_of(kind, pool_type, {what: getattr(pooling, f"{what}_{kind}") for what in ("max", "avg")})
    more = {"exclusive": exclusive} if pool_type == "avg" else {}
    return pool(
        input,
        pool_size,
        pool_stride,
        pool_padding,
        ceil_mode=ceil_mode,
        data_format=data_format,
        name=layer_name,
        **more,
    )


@variant(_pool, 2)
def pool2d() -> Any:
    """The "max" or "avg" of each window, or of the whole image; `exclusive` excludes the padding from the avg."""


@variant(_pool, 3, data_format="NCDHW")
def pool3d() -> Any:
    """The "max" or "avg" of each window of volumes, or of the whole volume; see pool2d."""


def _adaptive_pool(
    spatial: int,
    input: Variable,
    pool_size: Any,
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Any:
    kind = f"adaptive_pool{spatial}d"
    pools = {what: getattr(pooling, f"adaptive_{what}_pool{spatial}d") for what in ("max", "avg")}
    pool = _one_of(kind, pool_type, pools)
    if require_index and pool_type == "avg":
        raise ConfigError(f"{kind}: require_index=True with 'avg', which has no index; use 'max'")
    more = {"return_mask": require_index} if pool_type == "max" else {}
    return pool(input, pool_size, name=name or names.generate(kind), **more)


@variant(_adaptive_pool, 2)
def adaptive_pool2d() -> Any:
    """The "max" or "avg" of windows that cover the image; with require_index also the index of each max."""


@variant(_adaptive_pool, 3)
def adaptive_pool3d() -> Any:
    """The "max" or "avg" of windows that cover the volume; with require_index also the index of each max."""


def image_resize(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Any:
    """Images resized to actual_shape, out_shape or by `scale`, the first that is given: BILINEAR, BICUBIC or NEAREST.

                                           position in the input of pixel i
    align_corners                          i · (in - 1) / (out - 1)
    not align_corners, align_mode=0        (i + 0.5) · in / out - 0.5
    not align_corners, align_mode=1        i · in / out                      NEAREST always, if not aligned
    """
    mode = _one_of(
        "image_resize", resample.upper(), {m: m.lower() for m in ("BILINEAR", "BICUBIC", "NEAREST")}
    )
    out_shape = out_shape if actual_shape is None else actual_shape
    if out_shape is None and scale is None:
        raise ConfigError("image_resize: neither out_shape nor scale is given; give one of them")
    size = None if out_shape is None else per_axis("image_resize: out_shape", out_shape, 2)
    factor = scale if size is None else None
    layer_name = name or names.generate({"nearest": "nearest_interp"}.get(mode, f"{mode}_interp"))
    if mode == "nearest" and align_corners:
        return _resize_by_axis(input, size, factor, data_format, layer_name, _nearest)
    if mode == "bilinear" and align_mode == 1 and not align_corners:
        return _resize_by_axis(input, size, factor, data_format, layer_name, _linear)
    corners = align_corners and mode != "nearest"
    return common.interpolate(input, size, factor, mode, corners, 0, data_format, layer_name)


@variant(
    image_resize,
    parameters="input out_shape scale name actual_shape align_corners align_mode data_format",
    resample="BILINEAR",
)
def resize_bilinear() -> Any:
    """image_resize, BILINEAR."""


@variant(
    image_resize,
    parameters="input out_shape scale name actual_shape align_corners data_format",
    resample="NEAREST",
)
def resize_nearest() -> Any:
    """image_resize, NEAREST; torch's nearest is align_corners=False."""


def _resize_by_axis(
    x: Variable,
    size: list[int] | None,
    scale: Any,
    data_format: str,
    name: str,
    pick: Callable[[Tensor, int, Any], Tensor],
) -> Any:
    """Resize with sample positions that torch does not support, one axis after the other."""
    last = is_channels_last("image_resize", data_format, 2)

    def resized(images: Tensor) -> Tensor:
        images = channels_first(images, last)
        for dim in (2, 3):
            images = pick(images, dim, size[dim - 2] if size else math.floor(images.shape[dim] * scale))
        return channels_back(images, last)

    return apply("image_resize", resized, x, name=name)


def _nearest(x: Tensor, dim: int, size: Any) -> Tensor:
    """Rows at round(i · (in - 1) / (out - 1)), halves up."""
    ratio = (x.shape[dim] - 1) / (size - 1) if size > 1 else 0.0
    return x.index_select(dim, (torch.arange(size) * ratio + 0.5).long())


def _linear(x: Tensor, dim: int, size: Any) -> Tensor:
    """Interpolate linearly between the rows around i · in / out."""
    position = torch.arange(size, dtype=x.dtype) * (x.shape[dim] / size)
    low = position.long()
    high = (low + 1).clamp(max=x.shape[dim] - 1)
    weight = (position - low).reshape(-1, *[1] * (x.ndim - dim - 1))
    return torch.lerp(x.index_select(dim, low), x.index_select(dim, high), weight)


def _one_of(kind: str, wanted: str, known: dict[str, Any]) -> Any:
    if wanted not in known:
        raise ConfigError(f"{kind}: {wanted!r} is not known; use {' or '.join(known)}")
    return known[wanted]
