"""Recurrent units of 1.x for padded data: lstm_unit and gru_unit compute one step, lstm a whole sequence."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers.linear import fc
from argosy.framework.layer import LayerBuilder, apply
from argosy.nn.layer.recurrent import shapes
from argosy.tensor.manipulation import concat

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Any:
    """One step of an LSTM, (hidden, cell); fc of [x, hidden] gives the gates: input, forget, output, candidate."""
    width = cell_t_prev.shape[1]
    gates = fc([concat([x_t, hidden_t_prev], 1)], 4 * width, 1, param_attr, bias_attr)

    def step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = gates.split(width, 1)
        new = torch.sigmoid(f + forget_bias) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(new), new

    return tuple(apply("lstm_unit", step, gates, cell_t_prev, name=name))


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> Any:
    """One step of a GRU: (hidden, reset hidden, gates). The input, [N, size], is x times its weights; size is 3 D.

    Weights `name`.w_0 [D, 3 D] of the update gate, the reset gate and the candidate; bias .b_0 [1, 3 D]. The new hidden
    state is (1 - u) · hidden + u · candidate; with origin_mode u · hidden + (1 - u) · candidate.
    """
    for kind in (activation, gate_activation):
        if kind not in _ACTIVATIONS:
            raise ConfigError(f"gru_unit: activation {kind!r} is not known; use {', '.join(_ACTIVATIONS)}")
    if size % 3:
        raise ConfigError(
            f"gru_unit: size={size} is not divisible by 3; give three times the width of the hidden state"
        )
    width, gate, act = size // 3, _ACTIVATIONS[gate_activation], _ACTIVATIONS[activation]
    layer = LayerBuilder("gru_unit")
    weight = layer.parameter(param_attr, [width, size], input.dtype)
    bias = layer.parameter(bias_attr, [1, size], input.dtype, is_bias=True)

    def step(x: Tensor, h: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        x = x if b is None else x + b
        u, r = gate(x[:, : 2 * width] + h @ w[:, : 2 * width]).split(width, 1)
        reset = r * h
        c = act(x[:, 2 * width :] + reset @ w[:, 2 * width :])
        new = u * h + (1 - u) * c if origin_mode else (1 - u) * h + u * c
        return new, reset, torch.cat([u, r, c], 1)

    return tuple(layer.run(step, input, hidden, weight, bias))


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> Any:
    """An LSTM over [steps, N, width]: (outputs, last hidden states, last cells).

    One flat parameter `name`.w_0 has the weights of all layers and directions, then their biases, as cuDNN stores them.
    `max_len` has no effect.
    """
    if seed != -1:
        raise ConfigError(f"lstm: seed={seed} of one layer is not supported; set Program.random_seed")
    directions = 2 if is_bidirec else 1
    parts: list[list[list[int]]] = []
    for layer_number in range(num_layers):
        width = input.shape[-1] if layer_number == 0 else hidden_size * directions
        parts += [shapes("lstm", width, hidden_size)] * directions
    matrices = [shape for part in parts for shape in part[:2]]
    sizes = [rows * columns for rows, columns in matrices] + [part[2][0] for part in parts for _ in range(2)]
    layer = LayerBuilder("cudnn_lstm", name)
    weight = layer.parameter(None, [sum(sizes)], input.dtype, default_initializer=default_initializer)

    def run(x: Tensor, h: Tensor, c: Tensor, flat: Tensor) -> tuple[Tensor, ...]:
        pieces = list(flat.split(sizes))
        weights = [piece.reshape(shape) for piece, shape in zip(pieces, matrices, strict=False)]
        biases = pieces[len(matrices) :]
        each = [
            w for i in range(len(parts)) for w in (*weights[2 * i : 2 * i + 2], *biases[2 * i : 2 * i + 2])
        ]
        options = (num_layers, dropout_prob, not is_test, is_bidirec, False)
        return tuple(torch.lstm(x, [h, c], each, True, *options))

    return tuple(layer.run(run, input, init_h, init_c, weight))
