"""Recurrent layers of 1.x on ragged Variables: dynamic_lstm, dynamic_lstmp, dynamic_gru."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.sequence_scan import ACTIVATIONS, sequence_scan
from argosy.framework.layer import LayerBuilder
from argosy.framework.ragged import check_batch, lengths_for


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> Any:
    """(hidden, cell) [T, size / 4] of an LSTM over each sequence; `input` is [T, size], the projected rows.

    Gates are in the order candidate, input, forget, output. The weight is [size / 4, size]; the bias [1, size], with
    peepholes [1, 7/4 size]. `is_reverse` runs from the last row to the first.
    """
    layer, hidden = LayerBuilder("lstm", name), _hidden_size("dynamic_lstm", input, size, 4)
    weights = _weights(
        layer, param_attr, bias_attr, [hidden, size], (7 if use_peepholes else 4) * hidden, dtype
    )
    activations = [gate_activation, cell_activation, candidate_activation, "identity"]
    return _scan(
        layer, "lstm", input, [(h_0, hidden), (c_0, hidden)], weights, activations, [0.0, 0.0], is_reverse
    )


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> Any:
    """(projection [T, proj_size], cell [T, size / 4]) of an LSTM whose hidden state is projected after each step.

    `h_0` is the initial projection. `cell_clip` and `proj_clip` bound the absolute values of cell and projection.
    """
    layer, hidden = LayerBuilder("lstmp", name), _hidden_size("dynamic_lstmp", input, size, 4)
    weights = _weights(
        layer, param_attr, bias_attr, [proj_size, size], (7 if use_peepholes else 4) * hidden, dtype
    )
    weights.append(layer.parameter(param_attr, [hidden, proj_size], dtype))
    activations = [gate_activation, cell_activation, candidate_activation, proj_activation]
    states, clips = [(h_0, proj_size), (c_0, hidden)], [float(cell_clip or 0.0), float(proj_clip or 0.0)]
    return _scan(layer, "lstm", input, states, weights, activations, clips, is_reverse)


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Any:
    """The hidden states [T, size] of a GRU over each sequence; `input` is [T, 3 · size], the projected rows.

    Gates are in the order update, reset, candidate. The new state is (1 - u) · old + u · candidate; with `origin_mode`
    u · old + (1 - u) · candidate.
    """
    layer = LayerBuilder("gru")
    _hidden_size("dynamic_gru", input, 3 * size, 3)
    weights = _weights(layer, param_attr, bias_attr, [size, 3 * size], 3 * size, input.dtype)
    activations, clips = [gate_activation, candidate_activation], [float(origin_mode)]
    return _scan(layer, "gru", input, [(h_0, size)], weights, activations, clips, is_reverse)[0]


def _hidden_size(layer: str, input: Variable, size: int, gates: int) -> int:
    if size % gates or input.ndim != 2 or input.shape[1] != size:
        raise ConfigError(
            f"{layer}: the input has shape {list(input.shape)}, and the gates have {size} numbers; project the rows "
            f"first: fc(x, {size}), a multiple of {gates}"
        )
    return size // gates


def _weights(
    layer: LayerBuilder, param_attr: Any, bias_attr: Any, shape: list[int], bias: int, dtype: Any
) -> list[Any]:
    if bias_attr is False:
        raise ConfigError(f"{layer.kind}: bias_attr=False; the layer needs a bias, as in Paddle")
    weight = layer.parameter(param_attr, shape, dtype)
    return [weight, layer.parameter(bias_attr, [1, bias], dtype, is_bias=True)]


def _scan(
    layer: LayerBuilder,
    kind: str,
    input: Variable,
    states: list[tuple[Variable | None, int]],
    weights: list[Any],
    activations: list[str],
    clips: list[float],
    is_reverse: bool,
) -> Any:
    lengths = lengths_for(layer.kind, input)
    if unknown := [name for name in activations if name not in ACTIVATIONS]:
        raise ConfigError(
            f"{layer.kind}: activation {unknown[0]!r} is unknown; use one of {', '.join(ACTIVATIONS)}"
        )

    def scan(x: Tensor, lengths: Tensor, first: list[Tensor | None], weights: list[Tensor]) -> Any:
        zeros = [x.new_zeros(lengths.shape[0], size) for _, size in states]
        initial = [z if state is None else _for_each(state, z) for state, z in zip(first, zeros, strict=True)]
        flat = [weights[0], weights[1].flatten(), *weights[2:]]
        return sequence_scan(x, lengths, initial, flat, kind, activations, clips, is_reverse)

    return layer.run(scan, input, lengths, [state for state, _ in states], weights)


def _for_each(state: Tensor, zeros: Tensor) -> Tensor:
    """The state; required to have a row for each sequence."""
    check_batch(state, zeros)
    return state
