"""dynamic_lstm, dynamic_lstmp and dynamic_gru agree with loops over the rows, and with torch's LSTM."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.errors import ConfigError
from argosy.fluid import layers
from argosy.framework.layer import ParamAttr
from tests.ragged import Sequences, check

H, P = 2, 3
BATCHES = ([2, 0, 3], [4], [0, 0])


def numbers(*shape: int) -> Tensor:
    return torch.sin(torch.arange(float(torch.Size(shape).numel()))).reshape(shape)


def attr() -> ParamAttr:
    return ParamAttr(initializer=lambda shape, dtype: numbers(*shape))


def lstm(
    s: Tensor, peep: bool, h: Tensor, c: Tensor, projection: Tensor | None = None, clip: float = 9.0
) -> Tensor:
    """The formulas of Paddle's documentation, row by row."""
    weight, bias = numbers(len(h), 4 * H), numbers(1, (7 if peep else 4) * H)[0]
    ic, fc, oc = bias[4 * H :].split(H) if peep else (0.0, 0.0, 0.0)
    out = []
    for row in s:
        candidate, i, f, o = (row + h @ weight + bias[: 4 * H]).split(H)
        i, f = torch.sigmoid(i + ic * c), torch.sigmoid(f + fc * c)
        c = (f * c + i * torch.tanh(candidate)).clamp(-clip, clip)
        h = torch.sigmoid(o + oc * c) * torch.tanh(c)
        h = h if projection is None else torch.relu(h @ projection).clamp(-clip, clip)
        out.append(torch.cat([h, c]))
    return torch.stack(out) if out else s.new_zeros(0, len(h) + H)


@pytest.mark.parametrize(("peep", "reverse"), [(True, False), (False, True)])
def test_the_lstm_follows_the_documented_formulas(peep: bool, reverse: bool) -> None:
    def layer(x: Any) -> Any:
        options: Any = {"use_peepholes": peep, "is_reverse": reverse}
        return torch.cat(layers.dynamic_lstm(x, 4 * H, param_attr=attr(), bias_attr=attr(), **options), 1)

    def loop(sequences: Sequences) -> Sequences:
        zero = torch.zeros(H)
        if reverse:
            return [lstm(s.flip(0), peep, zero, zero).flip(0) for s in sequences]
        return [lstm(s, peep, zero, zero) for s in sequences]

    out = check(layer, loop, BATCHES, shapes=[(4 * H,)])
    assert [p.shape for p in out.program.all_parameters()] == [(H, 4 * H), (1, (7 if peep else 4) * H)]


def test_the_initial_states_are_rows_of_the_sequences() -> None:
    def layer(x: Any) -> Any:
        h_0, c_0 = (layers.sequence_pool(x[:, i : i + H], "sum") for i in (0, H))
        options: Any = {"param_attr": attr(), "bias_attr": attr()}
        return torch.cat(layers.dynamic_lstm(x, 4 * H, h_0, c_0, **options), 1)

    def loop(sequences: Sequences) -> Sequences:
        return [lstm(s, True, s[:, :H].sum(0), s[:, H : 2 * H].sum(0)) for s in sequences]

    check(layer, loop, BATCHES, shapes=[(4 * H,)])


def test_the_projected_lstm_clips_cell_and_projection() -> None:
    def layer(x: Any) -> Any:
        options: Any = {"param_attr": attr(), "bias_attr": attr(), "cell_clip": 0.3, "proj_clip": 0.3}
        return torch.cat(layers.dynamic_lstmp(x, 4 * H, P, proj_activation="relu", **options), 1)

    def loop(sequences: Sequences) -> Sequences:
        return [lstm(s, True, torch.zeros(P), torch.zeros(H), numbers(H, P), 0.3) for s in sequences]

    check(layer, loop, BATCHES, shapes=[(4 * H,)])


@pytest.mark.parametrize("origin", [False, True])
def test_the_gru_follows_the_documented_formulas(origin: bool) -> None:
    weight, bias = numbers(H, 3 * H), numbers(1, 3 * H)[0]

    def gru(s: Tensor) -> Tensor:
        h, out = torch.zeros(H), []
        for row in s + bias:
            u, r = torch.sigmoid(row[: 2 * H] + h @ weight[:, : 2 * H]).split(H)
            candidate = torch.tanh(row[2 * H :] + (r * h) @ weight[:, 2 * H :])
            h = u * h + (1 - u) * candidate if origin else (1 - u) * h + u * candidate
            out.append(h)
        return torch.stack(out) if out else s.new_zeros(0, H)

    check(
        lambda x: layers.dynamic_gru(x, H, param_attr=attr(), bias_attr=attr(), origin_mode=origin),
        lambda sequences: [gru(s) for s in sequences],
        BATCHES,
        shapes=[(3 * H,)],
    )


def test_torch_s_lstm_gives_the_same_hidden_states() -> None:
    """Independent of our formulas: the gates of torch are input, forget, candidate, output."""
    cell = torch.nn.LSTM(4 * H, H)
    order = torch.tensor([1, 2, 0, 3])  # of Paddle's gates
    weight = numbers(H, 4 * H).T.reshape(4, H, H)[order].reshape(4 * H, H)
    with torch.no_grad():
        cell.weight_ih_l0.copy_(torch.eye(4 * H).reshape(4, H, 4 * H)[order].reshape(4 * H, 4 * H))
        cell.weight_hh_l0.copy_(weight)
        cell.bias_ih_l0.copy_(numbers(1, 4 * H).reshape(4, H)[order].flatten())
        cell.bias_hh_l0.zero_()
    check(
        lambda x: layers.dynamic_lstm(x, 4 * H, param_attr=attr(), bias_attr=attr(), use_peepholes=False)[0],
        lambda sequences: [cell(s)[0] for s in sequences],
        ([2, 1, 3], [4]),
        shapes=[(4 * H,)],
    )


def test_arguments_that_do_not_fit_are_rejected() -> None:
    x = static.data("x", [None, 8], lod_level=1)
    for build, message in (
        (
            lambda: layers.dynamic_lstm(x, 12),
            r"shape \[-1, 8\], and the gates have 12 numbers; .* fc\(x, 12\)",
        ),
        (lambda: layers.dynamic_lstm(x, 8, gate_activation="swish"), "activation 'swish' is unknown"),
        (lambda: layers.dynamic_lstm(x, 8, bias_attr=False), "needs a bias"),
        (lambda: layers.dynamic_lstm(static.data("dense", [None, 8]), 8), "has no sequences"),
    ):
        with pytest.raises(ConfigError, match=message):
            build()
