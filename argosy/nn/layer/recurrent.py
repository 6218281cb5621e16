"""torch's recurrent functions for the recurrent layers: kinds, weights, and a call on Variables."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.framework.initializer import Uniform
from argosy.framework.layer import apply

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_FUNCTIONS = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
Attrs = tuple[Any, Any, Any, Any]
"""Attributes of weight_ih, weight_hh, bias_ih and bias_hh."""
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""The names of the parameters of a layer, in the order of torch."""


def rnn_kind(own_name: str, activation: str) -> str:
    """rnn_tanh or rnn_relu."""
    if activation not in ("tanh", "relu"):
        raise ConfigError(f"{own_name}: activation={activation!r} is not known; use 'tanh' or 'relu'")
    return f"rnn_{activation}"


def shapes(kind: str, input_size: int, hidden_size: int) -> list[list[int]]:
    """The shapes of weight_ih, weight_hh, bias_ih and bias_hh."""
    rows = _GATES[kind] * hidden_size
    return [[rows, input_size], [rows, hidden_size], [rows], [rows]]


def initializer(hidden_size: int) -> Uniform:
    """The initializer of all parameters."""
    return Uniform(-1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))


def with_biases(own_name: str, parts: list[Any]) -> list[Any]:
    """The weights and biases; without biases only the weights."""
    if (parts[2] is None) != (parts[3] is None):
        raise ConfigError(
            f"{own_name}: one of bias_ih_attr and bias_hh_attr is False; set both to False, or none"
        )
    return parts if parts[2] is not None else parts[:2]


def no_lengths(own_name: str, sequence_length: Any) -> None:
    """Raise if there are lengths."""
    if sequence_length is not None:
        raise ConfigError(
            f"{own_name}: sequence_length is not supported; mask the outputs with nn.functional.sequence_mask, or use "
            "sequences of one length"
        )


def run(
    x: Any,
    states: list[Any],
    weights: list[Any],
    kind: str,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    dropout: float,
    training: bool,
) -> Any:
    """(outputs, last states…) of torch's function; zeros if no initial states are given."""
    directions = 2 if bidirectional else 1
    has_biases = len(weights) == 4 * num_layers * directions

    def layers(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        first, rest = list(tensors[: len(states)]), list(tensors[len(states) :])
        if not first:
            shape = (num_layers * directions, x.shape[0 if batch_first else 1], hidden_size)
            first = [x.new_zeros(shape) for _ in range(2 if kind == "lstm" else 1)]
        function: Any = _FUNCTIONS[kind]
        given = first if kind == "lstm" else first[0]
        options = (num_layers, dropout, training, bidirectional, batch_first)
        return tuple(function(x, given, rest, has_biases, *options))

    return apply(kind, layers, x, *states, *weights)
