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
from argosy.nn.functional.layout import (
    Padding,
    channels_back,
    channels_first,
    is_channels_last,
    padding,
    per_axis,
)

_MAX: dict[int, Callable[..., torch.Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG: dict[int, Callable[..., torch.Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE_AVG: dict[int, Callable[..., torch.Tensor]] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}
_ADAPTIVE_MAX: dict[int, Callable[..., Any]] = {
    1: F.adaptive_max_pool1d,
    2: F.adaptive_max_pool2d,
    3: F.adaptive_max_pool3d,
}


@dataclass(frozen=True)
class _Window:
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


def _window(kind: str, spatial: int, kernel: Any, stride: Any, pad: Any, data_format: str) -> _Window:
    last = is_channels_last(kind, data_format, spatial)
    size = per_axis(f"{kind}: kernel_size", kernel, spatial)
    step = size if stride is None else per_axis(f"{kind}: stride", stride, spatial)
    return _Window(kind, spatial, last, size, step, padding(kind, pad, spatial, last))


def max_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """The greatest of each window over one axis; with `return_mask` also its index."""
    return _max_pool(
        x, _window("max_pool1d", 1, kernel_size, stride, padding, "NCL"), return_mask, ceil_mode, name
    )


def max_pool2d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """The greatest of each window over two axes; with `return_mask` also its index in the plane."""
    window = _window("max_pool2d", 2, kernel_size, stride, padding, data_format)
    return _max_pool(x, window, return_mask, ceil_mode, name)


def max_pool3d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """The greatest of each window over three axes; with `return_mask` also its index in the volume."""
    window = _window("max_pool3d", 3, kernel_size, stride, padding, data_format)
    return _max_pool(x, window, return_mask, ceil_mode, name)


def _max_pool(x: Variable, window: _Window, return_mask: bool, ceil_mode: bool, name: str | None) -> Any:
    within = window.within()
    if return_mask and (window.last or within is None):
        raise ConfigError(
            f"{window.kind}: return_mask needs channels first and the same padding on both sides, half a "
            "window at most; change these or leave return_mask out"
        )

    def pooled(x: torch.Tensor) -> Any:
        x = channels_first(x, window.last)
        x = window.padded(x, -torch.inf) if within is None else x
        pool = _MAX[window.spatial]
        out: Any = pool(
            x, window.kernel, window.stride, within or 0, ceil_mode=ceil_mode, return_indices=return_mask
        )
        return (out[0], out[1].int()) if return_mask else channels_back(out, window.last)

    return apply(window.kind, pooled, x, name=name)


def avg_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    exclusive: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """The mean of each window over one axis; `exclusive` excludes the padding from the count."""
    window = _window("avg_pool1d", 1, kernel_size, stride, padding, "NCL")
    return _avg_pool(x, window, ceil_mode, exclusive, None, name)


def avg_pool2d(
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
    """The mean of each window over two axes; `exclusive` excludes the padding from the count.

    `divisor_override` divides the sum of a window by this number instead.
    """
    window = _window("avg_pool2d", 2, kernel_size, stride, padding, data_format)
    return _avg_pool(x, window, ceil_mode, exclusive, divisor_override, name)


def avg_pool3d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: int | None = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """The mean of each window over three axes; otherwise as avg_pool2d."""
    window = _window("avg_pool3d", 3, kernel_size, stride, padding, data_format)
    return _avg_pool(x, window, ceil_mode, exclusive, divisor_override, name)


def _avg_pool(
    x: Variable, window: _Window, ceil_mode: bool, exclusive: bool, divisor: int | None, name: str | None
) -> Any:
    within = window.within()
    if divisor is not None and divisor < 1:
        raise ConfigError(f"{window.kind}: divisor_override={divisor} cannot divide; use 1 or more, or None")
    more = {} if divisor is None else {"divisor_override": divisor}

    def mean(x: torch.Tensor, pad: Any = 0) -> torch.Tensor:
        pool = _AVG[window.spatial]
        return pool(x, window.kernel, window.stride, pad, ceil_mode, not exclusive, **more)

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


def adaptive_avg_pool1d(x: Variable, output_size: Any, name: str | None = None) -> Any:
    """The means of `output_size` windows that cover the axis."""
    return _adaptive(1, _ADAPTIVE_AVG, "adaptive_avg_pool1d", x, output_size, "NCL", name)


def adaptive_avg_pool2d(
    x: Variable, output_size: Any, data_format: str = "NCHW", name: str | None = None
) -> Any:
    """The means of windows that cover the plane; None in `output_size` keeps a size."""
    return _adaptive(2, _ADAPTIVE_AVG, "adaptive_avg_pool2d", x, output_size, data_format, name)


def adaptive_avg_pool3d(
    x: Variable, output_size: Any, data_format: str = "NCDHW", name: str | None = None
) -> Any:
    """The means of windows that cover the block; None in `output_size` keeps a size."""
    return _adaptive(3, _ADAPTIVE_AVG, "adaptive_avg_pool3d", x, output_size, data_format, name)


def adaptive_max_pool1d(
    x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """The greatest of each of `output_size` windows; with `return_mask` also its index."""
    return _adaptive(1, _ADAPTIVE_MAX, "adaptive_max_pool1d", x, output_size, "NCL", name, return_mask)


def adaptive_max_pool2d(
    x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """The greatest of each window of the plane; with `return_mask` also its index."""
    return _adaptive(2, _ADAPTIVE_MAX, "adaptive_max_pool2d", x, output_size, "NCHW", name, return_mask)


def adaptive_max_pool3d(
    x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """The greatest of each window of the block; with `return_mask` also its index."""
    return _adaptive(3, _ADAPTIVE_MAX, "adaptive_max_pool3d", x, output_size, "NCDHW", name, return_mask)


def _adaptive(
    spatial: int,
    pools: dict[int, Callable[..., Any]],
    kind: str,
    x: Variable,
    output_size: Any,
    data_format: str,
    name: str | None,
    return_mask: bool = False,
) -> Any:
    last = is_channels_last(kind, data_format, spatial)
    given = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * spatial
    known = per_axis(f"{kind}: output_size", [1 if size is None else size for size in given], spatial)

    def pooled(x: torch.Tensor) -> Any:
        x = channels_first(x, last)
        wanted = [x.shape[i + 2] if size is None else known[i] for i, size in enumerate(given)]
        if return_mask:
            out, places = pools[spatial](x, wanted, return_indices=True)
            return out, places.int()
        return channels_back(pools[spatial](x, wanted), last)

    return apply(kind, pooled, x, name=name)
