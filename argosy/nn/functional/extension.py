"""Functions that only Paddle has: diag_embed, sequence_mask, gather_tree, alpha_dropout, temporal_shift."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir import lowering
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import chosen_dtype, number


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices in the dimensions dim1 and dim2 whose diagonals are the last dimension of the input."""
    return apply("diag_embed", torch.diag_embed, input, offset, dim1, dim2)


def sequence_mask(x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None) -> Any:
    """1 at the positions below each length of x, else 0: [*x.shape, maxlen].

    `maxlen` must be known while the program is built: a number, or a size such as `y.size(1)`.
    """
    if maxlen is None:
        raise ConfigError(
            "sequence_mask: maxlen=None means the longest length, which is known only when data is fed; give a "
            "number, or the size of a dimension: x.size(1)"
        )
    wanted = chosen_dtype(dtype)
    size: Any = number("sequence_mask: maxlen", maxlen)

    def mask(lengths: torch.Tensor) -> torch.Tensor:
        return (torch.arange(size) < lengths.unsqueeze(-1)).to(wanted)

    return apply("sequence_mask", mask, x, name=name)


def gather_tree(ids: Variable, parents: Variable) -> Any:
    """The full sequences of a beam search: ids and parents are [steps, batch, beam]."""
    steps = ids.shape[0]
    if steps < 0:
        raise ConfigError(
            f"gather_tree: {ids.name!r} has a first dimension that is known only when data is fed; give the data a "
            "number there"
        )

    def traced(ids: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
        beam = torch.arange(ids.shape[2]).expand_as(ids[0])
        rows = []
        for step in reversed(range(steps)):
            rows.append(ids[step].gather(1, beam))
            beam = parents[step].long().gather(1, beam)
        return torch.stack(rows[::-1])

    return apply("gather_tree", traced, ids, parents)


_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def alpha_dropout(x: Variable, p: float = 0.5, training: bool = True, name: str | None = None) -> Any:
    """Dropout for selu: a dropped element becomes selu's lower limit, and mean and variance are kept."""
    if not 0 <= p <= 1:
        raise ConfigError(f"alpha_dropout: p={p} is no probability; use 0 to 1")
    if not training or p == 0:
        return apply("alpha_dropout", torch.clone, x, name=name)
    if p == 1:
        return apply("alpha_dropout", torch.zeros_like, x, name=name)
    lowest = -_ALPHA * _SCALE
    factor = ((1 - p) * (1 + p * lowest**2)) ** -0.5
    shift = -factor * lowest * p

    def dropped(x: torch.Tensor) -> torch.Tensor:
        # 0 or 1 / (1 - p) while training, and 1 in clone(for_test=True), which removes the dropout
        mask = lowering.dropout(torch.ones_like(x), p)
        out = torch.where(mask == 0, factor * lowest + shift, factor * x + shift)
        return torch.where(mask == 1, x, out)

    return apply("alpha_dropout", dropped, x, name=name)


def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None, data_format: str = "NCHW"
) -> Any:
    """Move a part of the channels one frame back and as many one frame ahead: x is [videos · seg_num, C, H, W]."""
    if data_format not in ("NCHW", "NHWC"):
        raise ConfigError(f"temporal_shift: data_format={data_format!r} is not known; use NCHW or NHWC")
    if not 0 < shift_ratio < 0.5:
        raise ConfigError(
            f"temporal_shift: shift_ratio={shift_ratio} is out of range; use a number between 0 and 0.5"
        )
    last = data_format == "NHWC"

    def shifted(x: torch.Tensor) -> torch.Tensor:
        x = x.movedim(-1, 1) if last else x
        frames = x.unflatten(0, (-1, seg_num))
        first, second = int(x.shape[1] * shift_ratio), int(x.shape[1] * 2 * shift_ratio)
        none = torch.zeros_like(frames[:, :1])
        back = torch.cat([none[:, :, :first], frames[:, :-1, :first]], 1)
        ahead = torch.cat([frames[:, 1:, first:second], none[:, :, first:second]], 1)
        out = torch.cat([back, ahead, frames[:, :, second:]], 2).flatten(0, 1)
        return out.movedim(1, -1) if last else out

    return apply("temporal_shift", shifted, x, name=name)
