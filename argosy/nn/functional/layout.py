"""Arguments of convolution and pooling: data format, one number per axis, padding.

Torch's functions take channels first; data in NHWC is permuted, which copies nothing, and permuted back.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.tensor.arguments import Size, sizes

FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""By number of spatial axes: channels first, channels last."""


def is_channels_last(layer: str, data_format: str, spatial: int) -> bool:
    """True for channels-last formats such as NHWC; raises for a format that does not fit the number of axes."""
    known = FORMATS.get(
        spatial, ("NC", "NCL", "NCHW", "NCDHW")
    )  # [N, C] has no spatial axis: all mean the same
    if data_format not in known:
        raise ConfigError(f"{layer}: data_format={data_format!r} is not known here; use {' or '.join(known)}")
    return spatial in FORMATS and data_format[-1] == "C"


def channels_first(x: torch.Tensor, last: bool) -> torch.Tensor:
    """x with its channels on axis 1."""
    return x.movedim(-1, 1) if last else x


def channels_back(x: torch.Tensor, last: bool) -> torch.Tensor:
    """The inverse of `channels_first`."""
    return x.movedim(1, -1) if last else x


def per_axis(what: str, value: Any, spatial: int) -> list[int]:
    """One number for every axis, from one number or from as many as there are axes."""
    numbers = [int(v) for v in sizes(what, value)]
    if len(numbers) == 1:
        return numbers * spatial
    if len(numbers) != spatial:
        raise ConfigError(
            f"{what}={value} has {len(numbers)} numbers; give one, or {spatial}: one for each axis"
        )
    return numbers


@dataclass(frozen=True)
class Padding:
    """Zeros around the data: (before, after) for every axis, or None for 'SAME'."""

    pairs: tuple[tuple[int, int], ...] | None

    @property
    def symmetric(self) -> list[int] | None:
        """One number for every axis, if before and after are equal everywhere."""
        if self.pairs is None or any(before != after for before, after in self.pairs):
            return None
        return [before for before, _ in self.pairs]

    def apply(
        self, x: torch.Tensor, kernel: list[int], stride: list[int], dilation: list[int], value: float = 0.0
    ) -> torch.Tensor:
        """x, channels first, with the padding around it."""
        pairs: Any = self.pairs
        if pairs is None:
            pairs = [_same(*one) for one in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
        flat = [size for pair in reversed(pairs) for size in pair]
        return F.pad(x, flat, value=value)


def _same(size: Size, kernel: int, stride: int, dilation: int) -> tuple[Size, Size]:
    """Padding for which the result has size ceil(size / stride); an odd element is added at the end."""
    reach = dilation * (kernel - 1) + 1
    total: Any = reach - 1
    if stride > 1:
        needed: Any = ((size + stride - 1) // stride - 1) * stride + reach - size
        total = torch.sym_max(needed, 0)
    return total // 2, total - total // 2


def to_padding(layer: str, value: Any, spatial: int, last: bool) -> Padding:
    """From 'SAME', 'VALID', a number, one for each axis, two for each axis, or pairs for all axes of x."""
    if isinstance(value, str):
        if value.upper() not in ("SAME", "VALID"):
            raise ConfigError(f"{layer}: padding={value!r} is not known; use 'SAME', 'VALID' or numbers")
        return Padding(None if value.upper() == "SAME" else ((0, 0),) * spatial)
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return Padding(_spatial_pairs(layer, value, spatial, last))
    numbers = [int(v) for v in sizes(f"{layer}: padding", value)]
    if len(numbers) == 2 * spatial:
        return Padding(tuple(zip(numbers[::2], numbers[1::2], strict=True)))
    return Padding(tuple((p, p) for p in per_axis(f"{layer}: padding", numbers, spatial)))


def _spatial_pairs(layer: str, value: Any, spatial: int, last: bool) -> tuple[tuple[int, int], ...]:
    pairs = [tuple(int(v) for v in sizes(f"{layer}: padding", pair)) for pair in value]
    if any(len(pair) != 2 for pair in pairs) or len(pairs) not in (spatial, spatial + 2):
        raise ConfigError(
            f"{layer}: padding={value} are not {spatial + 2} pairs; give [before, after] for each axis of x"
        )
    if len(pairs) == spatial + 2:
        outer = (pairs[0], pairs[-1]) if last else (pairs[0], pairs[1])
        if any(pair != (0, 0) for pair in outer):
            raise ConfigError(
                f"{layer}: padding={value} pads the batch or the channels; give [0, 0] for those"
            )
        pairs = pairs[1:-1] if last else pairs[2:]
    return tuple((before, after) for before, after in pairs)
