"""Convolutions and transposed convolutions over one, two or three axes.

`padding` is 'SAME' (the result is ceil(size / stride) long), 'VALID' (none), a number, one number for each
axis, two for each axis (before, after), or a pair for each axis of x with [0, 0] for batch and channels.
'SAME' counts the dilation, which Paddle sets to 1 then. Weights are [out, in / groups, …] in every data_format.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import variant
from argosy.nn.functional.layout import channels_back, channels_first, is_channels_last, per_axis, to_padding
from argosy.tensor.arguments import Size

_CONV: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., torch.Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


def _conv(
    spatial: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    kind = f"conv{spatial}d"
    last = is_channels_last(kind, data_format, spatial)
    steps, gaps = (
        per_axis(f"{kind}: stride", stride, spatial),
        per_axis(f"{kind}: dilation", dilation, spatial),
    )
    around = to_padding(kind, padding, spatial, last)

    def convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        x = channels_first(x, last)
        within = around.symmetric
        if within is None:
            x, within = around.apply(x, list(weight.shape[2:]), steps, gaps), [0] * spatial
        return channels_back(_CONV[spatial](x, weight, bias, steps, within, gaps, groups), last)

    return apply(kind, convolved, x, weight, bias, name=name)


@variant(_conv, 1, data_format="NCL")
def conv1d() -> Any:
    """Convolution over one axis; NCL or NLC."""


@variant(_conv, 2)
def conv2d() -> Any:
    """Convolution over two axes; NCHW or NHWC."""


@variant(_conv, 3, data_format="NCDHW")
def conv3d() -> Any:
    """Convolution over three axes; NCDHW or NDHWC."""


def _transposed(
    spatial: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    kind = f"conv{spatial}d_transpose"
    last = is_channels_last(kind, data_format, spatial)
    steps, gaps = (
        per_axis(f"{kind}: stride", stride, spatial),
        per_axis(f"{kind}: dilation", dilation, spatial),
    )
    reach = [gap * (size - 1) + 1 for gap, size in zip(gaps, weight.shape[2:], strict=True)]
    extra: list[Size] = list(per_axis(f"{kind}: output_padding", output_padding, spatial))
    pairs = to_padding(kind, padding, spatial, last).pairs
    if pairs is None:  # 'SAME'
        over = [max(r - s, 0) for r, s in zip(reach, steps, strict=True)]
        pairs = tuple((o // 2, o - o // 2) for o in over)
        extra = [max(s - r, 0) for r, s in zip(reach, steps, strict=True)]
    if output_size is not None:
        if any(extra):
            raise ConfigError(
                f"{kind}: output_size and output_padding={output_padding} set the same thing; give one of them"
            )
        wanted = per_axis(f"{kind}: output_size", output_size, spatial)
    # Torch pads both sides equally; the excess of one side is cut off the result.
    within = [min(pair) for pair in pairs]
    cut = [(before - w, after - w) for (before, after), w in zip(pairs, within, strict=True)]

    def convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        x = channels_first(x, last)
        more = extra
        if output_size is not None:
            around = [r - sum(p) for r, p in zip(reach, pairs, strict=True)]
            sizes = [
                _input_size(n, w, s, a) for n, w, s, a in zip(x.shape[2:], wanted, steps, around, strict=True)
            ]
            more = _missing(
                kind, wanted, [(n - 1) * s + a for n, s, a in zip(sizes, steps, around, strict=True)], steps
            )
        out = _TRANSPOSED[spatial](x, weight, bias, steps, within, more, groups, gaps)
        for dim, (before, after) in enumerate(cut, start=2):
            out = out.narrow(dim, before, out.shape[dim] - before - after) if before or after else out
        return channels_back(out, last)

    return apply(kind, convolved, x, weight, bias, name=name)


@variant(_transposed, 1, data_format="NCL")
def conv1d_transpose() -> Any:
    """Transposed convolution over one axis; weights are [in, out / groups, …], 'SAME' gives size * stride."""


@variant(
    _transposed,
    2,
    parameters="x weight bias stride padding output_padding dilation groups output_size data_format name",
)
def conv2d_transpose() -> Any:
    """Transposed convolution over two axes; weights are [in, out / groups, …], 'SAME' gives size * stride."""


@variant(_transposed, 3, data_format="NCDHW")
def conv3d_transpose() -> Any:
    """Transposed convolution over three axes; weights are [in, out / groups, …], 'SAME' gives size * stride."""


def _input_size(size: Size, wanted: int, step: int, around: int) -> Size:
    """The size of an input; the only one from which the wanted output can be reached if it is unknown."""
    if isinstance(size, int):
        return size
    only = max((wanted - around) // step + 1, 1)
    torch._check(size == only)
    return only


def _missing(kind: str, wanted: list[int], least: Sequence[Size], steps: list[int]) -> list[Size]:
    """The output padding that gives the requested size."""
    more = [want - size for want, size in zip(wanted, least, strict=True)]
    if any(m < 0 or m >= step for m, step in zip(more, steps, strict=True)):
        most = [size + step - 1 for size, step in zip(least, steps, strict=True)]
        raise ConfigError(f"{kind}: output_size={wanted} cannot be reached; use {list(least)} to {most}")
    return more
