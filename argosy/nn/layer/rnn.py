"""Recurrent layers: SimpleRNN, LSTM and GRU, their cells, and RNN and BiRNN, which run a cell over a sequence.

The weights are those of torch: weight_ih [gates · hidden, input], weight_hh [gates · hidden, hidden]; the gates of an
LSTM are input, forget, cell, output, those of a GRU reset, update, candidate. Each layer is one node
(ops/recurrent.py), so that the number of steps may be unknown.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.framework.layer import apply
from argosy.nn.layer.layers import Layer
from argosy.nn.layer.recurrent import (
    PARTS,
    Attrs,
    initializer,
    no_lengths,
    rnn_kind,
    run,
    shapes,
    with_biases,
)
from argosy.nn.layer.rnn_cells import TorchCell
from argosy.tensor.manipulation import concat


class RNN(Layer):
    """Runs a cell over the steps of [N, steps, input], or of [steps, N, input] if time_major.

    A cell of another class than this module's is unrolled, which needs a known number of steps.
    """

    def __init__(self, cell: Any, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell, self.is_reverse, self.time_major = cell, is_reverse, time_major

    def forward(
        self, inputs: Any, initial_states: Any = None, sequence_length: Any = None, **kwargs: Any
    ) -> Any:
        no_lengths("RNN", sequence_length)
        axis = 0 if self.time_major else 1
        if self.is_reverse:
            inputs = apply("reverse", torch.flip, inputs, [axis])
        steps = self._run_known_cell if isinstance(self.cell, TorchCell) and not kwargs else self._unroll
        outputs, states = steps(inputs, initial_states, axis, **kwargs)
        return (apply("reverse", torch.flip, outputs, [axis]) if self.is_reverse else outputs), states

    def _run_known_cell(self, inputs: Any, states: Any, axis: int) -> Any:
        cell = self.cell
        given = [] if states is None else list(states) if cell.kind == "lstm" else [states]
        first = [apply("unsqueeze", torch.unsqueeze, state, 0) for state in given]
        options = (cell.kind, cell.hidden_size, 1, False, axis == 1, 0.0, False)
        outputs, *last = run(inputs, first, cell.weights(), *options)
        final = tuple(apply("squeeze", torch.squeeze, state, 0) for state in last)
        return outputs, final if cell.kind == "lstm" else final[0]

    def _unroll(self, inputs: Any, states: Any, axis: int, **kwargs: Any) -> Any:
        steps = inputs.shape[axis]
        if steps < 0:
            raise ConfigError(
                f"RNN: {inputs.name!r} has a number of steps that is known only when data is fed, and "
                f"{type(self.cell).__name__} is unrolled; give static.data the number of steps"
            )
        if states is None:
            states = self.cell.get_initial_states(inputs, batch_dim_idx=1 - axis)
        outputs = []
        for step in apply("unbind", torch.unbind, inputs, axis):
            out, states = self.cell(step, states, **kwargs)
            outputs.append(out)
        return apply("stack", lambda *parts: torch.stack(parts, axis), *outputs), states


class BiRNN(Layer):
    """Runs a cell forwards and another one backwards; the outputs are concatenated, the states a pair."""

    def __init__(self, cell_fw: Any, cell_bw: Any, time_major: bool = False) -> None:
        super().__init__()
        self.fw = RNN(cell_fw, time_major=time_major)
        self.bw = RNN(cell_bw, is_reverse=True, time_major=time_major)

    def forward(
        self, inputs: Any, initial_states: Any = None, sequence_length: Any = None, **kwargs: Any
    ) -> Any:
        first, second = (None, None) if initial_states is None else initial_states
        forwards, state_fw = self.fw(inputs, first, sequence_length, **kwargs)
        backwards, state_bw = self.bw(inputs, second, sequence_length, **kwargs)
        return concat([forwards, backwards], -1), (state_fw, state_bw)


class _Recurrent(Layer):
    """Several layers of a recurrent network, in one or both directions.

    forward(inputs, initial_states) returns (outputs, last states), the states [layers · directions, N, hidden].
    """

    def __init__(
        self,
        kind: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        direction: str,
        time_major: bool,
        dropout: float,
        attrs: Attrs,
    ) -> None:
        super().__init__()
        own_name = type(self).__name__
        if direction not in ("forward", "bidirect", "bidirectional"):
            raise ConfigError(
                f"{own_name}: direction={direction!r} is not known; use 'forward' or 'bidirect'"
            )
        self.kind, self.input_size, self.hidden_size, self.num_layers = (
            kind,
            input_size,
            hidden_size,
            num_layers,
        )
        self.bidirectional, self.time_major, self.dropout = direction != "forward", time_major, dropout
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * (2 if self.bidirectional else 1)
            for suffix in ("", "_reverse") if self.bidirectional else ("",):
                for what, shape, attr in zip(PARTS, shapes(kind, width, hidden_size), attrs, strict=True):
                    parameter = self.create_parameter(
                        shape, attr, is_bias=len(shape) == 1, default_initializer=initializer(hidden_size)
                    )
                    setattr(self, f"{what}_l{layer}{suffix}", parameter)

    def forward(self, inputs: Any, initial_states: Any = None, sequence_length: Any = None) -> Any:
        no_lengths(type(self).__name__, sequence_length)
        is_lstm = self.kind == "lstm"
        states = [] if initial_states is None else list(initial_states) if is_lstm else [initial_states]
        weights = [
            weight
            for layer in range(self.num_layers)
            for suffix in (("", "_reverse") if self.bidirectional else ("",))
            for weight in with_biases(
                type(self).__name__, [getattr(self, f"{what}_l{layer}{suffix}") for what in PARTS]
            )
        ]
        options = (self.kind, self.hidden_size, self.num_layers, self.bidirectional, not self.time_major)
        outputs, *last = run(inputs, states, weights, *options, self.dropout, self.training)
        return outputs, tuple(last) if is_lstm else last[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class SimpleRNN(_Recurrent):
    """h = activation(weight_ih · x + bias_ih + weight_hh · h + bias_hh) over the steps of a sequence."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        kind = rnn_kind("SimpleRNN", activation)
        super().__init__(kind, input_size, hidden_size, num_layers, direction, time_major, dropout, attrs)


class LSTM(_Recurrent):
    """An LSTM over the steps of a sequence; the states are (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__("lstm", input_size, hidden_size, num_layers, direction, time_major, dropout, attrs)


class GRU(_Recurrent):
    """A GRU over the steps of a sequence."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__("gru", input_size, hidden_size, num_layers, direction, time_major, dropout, attrs)
