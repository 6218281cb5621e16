"""Pooling: the greatest or the mean of each window. `padding` as in conv.py; it never counts as a maximum.

With `ceil_mode` a window that would begin behind the data is left out, as in torch.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import variant
from argosy.nn.functional.layout import (
    Padding,
    channels_back,
    channels_first,
    is_channels_last,
    per_axis,
    to_padding,
)

_MAX: dict[int, Callable[..., torch.Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG: dict[int, Callable[..., torch.Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE: dict[str, dict[int, Callable[..., Any]]] = {
    "avg": {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d},
    "max": {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d},
}


@dataclass(frozen=True)
class _PoolWindow:
    """How a window moves over the data."""

    kind: str
    spatial: int
    last: bool
    kernel: list[int]
    stride: list[int]
    around: Padding

    def within(self) -> list[int] | None:
        """The padding in the form of torch's pooling: equal on both sides, at most half a window."""
        both = self.around.symmetric
        return (
            both
            if both is not None and all(2 * p <= k for p, k in zip(both, self.kernel, strict=True))
            else None
        )

    def padded(self, x: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        return self.around.apply(x, self.kernel, self.stride, [1] * self.spatial, value)


def _window(kind: str, spatial: int, kernel: Any, stride: Any, pad: Any, data_format: str) -> _PoolWindow:
    last = is_channels_last(kind, data_format, spatial)
    size = per_axis(f"{kind}: kernel_size", kernel, spatial)
    step = size if stride is None else per_axis(f"{kind}: stride", stride, spatial)
    return _PoolWindow(kind, spatial, last, size, step, to_padding(kind, pad, spatial, last))


def _max_pool(
    spatial: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    window = _window(f"max_pool{spatial}d", spatial, kernel_size, stride, padding, data_format)
    within = window.within()
    if return_mask and (window.last or within is None):
        raise ConfigError(
            f"{window.kind}: return_mask needs channels first and the same padding on both sides, half a "
            "window at most; change these or leave return_mask out"
        )

    def pooled(x: torch.Tensor) -> Any:
        x = channels_first(x, window.last)
        x = window.padded(x, -torch.inf) if within is None else x
        out: Any = _MAX[spatial](
            x, window.kernel, window.stride, within or 0, ceil_mode=ceil_mode, return_indices=return_mask
        )
        return (out[0], out[1].int()) if return_mask else channels_back(out, window.last)

    return apply(window.kind, pooled, x, name=name)


@variant(
    _max_pool, 1, parameters="x kernel_size stride padding return_mask ceil_mode name", data_format="NCL"
)
def max_pool1d() -> Any:
    """The greatest of each window over one axis; with `return_mask` also its index."""


@variant(_max_pool, 2)
def max_pool2d() -> Any:
    """The greatest of each window over two axes; with `return_mask` also its index in the plane."""


@variant(_max_pool, 3, data_format="NCDHW")
def max_pool3d() -> Any:
    """The greatest of each window over three axes; with `return_mask` also its index in the volume."""


def _avg_pool(
    spatial: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: int | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    window = _window(f"avg_pool{spatial}d", spatial, kernel_size, stride, padding, data_format)
    within, divisor = window.within(), divisor_override
    if divisor is not None and divisor < 1:
        raise ConfigError(f"{window.kind}: divisor_override={divisor} cannot divide; use 1 or more, or None")
    more = {} if divisor is None else {"divisor_override": divisor}

    def mean(x: torch.Tensor, pad: Any = 0) -> torch.Tensor:
        return _AVG[spatial](x, window.kernel, window.stride, pad, ceil_mode, not exclusive, **more)

    def pooled(x: torch.Tensor) -> torch.Tensor:
        x = channels_first(x, window.last)
        if within is not None:
            out = mean(x, within)
        elif exclusive and divisor is None:
            # The fraction of each window that is data; both means count the padding.
            out = mean(window.padded(x)) / mean(window.padded(torch.ones_like(x)))
        else:
            out = mean(window.padded(x))
        return channels_back(out, window.last)

    return apply(window.kind, pooled, x, name=name)


@variant(_avg_pool, 1, parameters="x kernel_size stride padding exclusive ceil_mode name", data_format="NCL")
def avg_pool1d() -> Any:
    """The mean of each window over one axis; `exclusive` excludes the padding from the count."""


@variant(_avg_pool, 2)
def avg_pool2d() -> Any:
    """The mean of each window over two axes; `exclusive` excludes the padding from the count.

    `divisor_override` divides the sum of a window by this number instead.
    """


@variant(_avg_pool, 3, data_format="NCDHW")
def avg_pool3d() -> Any:
    """The mean of each window over three axes; otherwise as avg_pool2d."""


def _adaptive(
    spatial: int,
    pool: str,
    x: Variable,
    output_size: Any,
    return_mask: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    kind = f"adaptive_{pool}_pool{spatial}d"
    last = is_channels_last(kind, data_format, spatial)
    given = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * spatial
    known = per_axis(f"{kind}: output_size", [1 if size is None else size for size in given], spatial)

    def pooled(x: torch.Tensor) -> Any:
        x = channels_first(x, last)
        wanted = [x.shape[i + 2] if size is None else known[i] for i, size in enumerate(given)]
        if return_mask:
            out, places = _ADAPTIVE[pool][spatial](x, wanted, return_indices=True)
            return out, places.int()
        return channels_back(_ADAPTIVE[pool][spatial](x, wanted), last)

    return apply(kind, pooled, x, name=name)


_AVG_PARAMETERS = "x output_size data_format name"
_MAX_PARAMETERS = "x output_size return_mask name"


@variant(_adaptive, 1, "avg", parameters="x output_size name", data_format="NCL")
def adaptive_avg_pool1d() -> Any:
    """The means of `output_size` windows that cover the axis."""


@variant(_adaptive, 2, "avg", parameters=_AVG_PARAMETERS)
def adaptive_avg_pool2d() -> Any:
    """The means of windows that cover the plane; None in `output_size` keeps a size."""


@variant(_adaptive, 3, "avg", parameters=_AVG_PARAMETERS, data_format="NCDHW")
def adaptive_avg_pool3d() -> Any:
    """The means of windows that cover the block; None in `output_size` keeps a size."""


@variant(_adaptive, 1, "max", parameters=_MAX_PARAMETERS, data_format="NCL")
def adaptive_max_pool1d() -> Any:
    """The greatest of each of `output_size` windows; with `return_mask` also its index."""


@variant(_adaptive, 2, "max", parameters=_MAX_PARAMETERS)
def adaptive_max_pool2d() -> Any:
    """The greatest of each window of the plane; with `return_mask` also its index."""


@variant(_adaptive, 3, "max", parameters=_MAX_PARAMETERS, data_format="NCDHW")
def adaptive_max_pool3d() -> Any:
    """The greatest of each window of the block; with `return_mask` also its index."""
