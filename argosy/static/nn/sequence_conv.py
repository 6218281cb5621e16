"""Windows of neighbouring rows inside of each sequence: sequence_conv, sequence_enumerate."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import LayerBuilder, apply
from argosy.framework.ragged import constant_row, lengths_for, places, rows_or, segments


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Any:
    """Each row from the `filter_size` rows of its sequence that begin `padding_start` rows after it; else zeros.

    `padding_start` is -(filter_size // 2) by default: the window is centred. The weight is [filter_size · D,
    num_filters]. `filter_stride` must be 1. `padding` has no effect, as in Paddle.
    """
    lengths = lengths_for("sequence_conv", input)
    if filter_stride != 1 or filter_size < 1:
        raise ConfigError(
            f"sequence_conv: filter_size={filter_size}, filter_stride={filter_stride}; give a positive size, and a "
            "stride of 1"
        )
    first = -(filter_size // 2) if padding_start is None else padding_start
    layer = LayerBuilder("sequence_conv", name)
    weight = layer.parameter(param_attr, [filter_size * math.prod(input.shape[1:]), num_filters], input.dtype)
    bias = layer.parameter(bias_attr, [num_filters], input.dtype, is_bias=True)

    def conv(x: Tensor, lengths: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = _windows(x.flatten(1), lengths, filter_size, first, 0.0).flatten(1)
        return rows @ weight if bias is None else torch.addmm(bias, rows, weight)

    return layer.activate(layer.run(conv, input, lengths, weight, bias), act)


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Any:
    """For each id of a sequence, itself and the next win_size - 1 ids; `pad_value` after the end: [T, win_size]."""
    lengths = lengths_for("sequence_enumerate", input)
    if win_size < 1 or input.shape[1:] not in ((), (1,)):
        raise ConfigError(
            f"sequence_enumerate: win_size={win_size}, input of shape {list(input.shape)}; give a positive size, and "
            "ids of shape [None, 1]"
        )

    def windows(x: Tensor, lengths: Tensor) -> Tensor:
        return _windows(x.reshape(-1), lengths, win_size, 0, pad_value)

    return apply("sequence_enumerate", windows, input, lengths, name=name)


def _windows(x: Tensor, lengths: Tensor, size: int, first: int, pad_value: float) -> Tensor:
    """[T, size, …]: the rows at `first`, first + 1, … from each row, `pad_value` outside of the sequence."""
    segment = segments(lengths, x.shape[0])
    shifts = torch.arange(first, first + size)
    place = places(lengths, segment).unsqueeze(1) + shifts
    is_inside = (place >= 0) & (place < lengths[segment].unsqueeze(1))
    index = torch.arange(x.shape[0]).unsqueeze(1) + shifts
    return rows_or(x, index, is_inside, constant_row(x, pad_value))
