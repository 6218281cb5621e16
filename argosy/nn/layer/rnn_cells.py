"""Cells of recurrent layers: one step of a SimpleRNN, an LSTM or a GRU."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.framework.layer import apply
from argosy.nn.layer.layers import Layer
from argosy.nn.layer.recurrent import Attrs, initializer, rnn_kind, shapes, with_biases

_CELLS: dict[str, Any] = {
    "lstm": torch.lstm_cell,
    "gru": torch.gru_cell,
    "rnn_tanh": torch.rnn_tanh_cell,
    "rnn_relu": torch.rnn_relu_cell,
}


class RNNCellBase(Layer):
    """A cell computes one step: forward(inputs, states) returns (outputs, new states)."""

    @property
    def state_shape(self) -> Any:
        """The shape of a state without the batch, or several of them; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no state_shape; define it")

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """States filled with init_value, for as many samples as batch_ref has."""
        wanted = self.state_shape if shape is None else shape
        if isinstance(wanted[0], list | tuple):
            return tuple(
                self.get_initial_states(batch_ref, one, dtype, init_value, batch_dim_idx) for one in wanted
            )

        def filled(x: Tensor) -> Tensor:
            return torch.full((x.shape[batch_dim_idx], *wanted), init_value, dtype=self._state_dtype)

        self._state_dtype = torch.get_default_dtype() if dtype is None else dtype
        return apply("initial_states", filled, batch_ref)


class TorchCell(RNNCellBase):
    """A cell with torch's weights."""

    def __init__(self, kind: str, input_size: int, hidden_size: int, attrs: Attrs) -> None:
        super().__init__()
        if hidden_size < 1:
            raise ConfigError(f"{type(self).__name__}: hidden_size={hidden_size}; use 1 or more")
        self.kind, self.input_size, self.hidden_size = kind, input_size, hidden_size
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = (
            self.create_parameter(
                shape, attr, is_bias=len(shape) == 1, default_initializer=initializer(hidden_size)
            )
            for shape, attr in zip(shapes(kind, input_size, hidden_size), attrs, strict=True)
        )

    def weights(self) -> list[Any]:
        """The weights, and the biases if it has them."""
        return with_biases(type(self).__name__, [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh])

    @property
    def state_shape(self) -> Any:
        """(hidden_size,), or two of them for an LSTM."""
        shape = (self.hidden_size,)
        return (shape, shape) if self.kind == "lstm" else shape

    def forward(self, inputs: Any, states: Any = None) -> Any:
        states = self.get_initial_states(inputs) if states is None else states
        listed = list(states) if self.kind == "lstm" else [states]
        weights = self.weights()

        def step(x: Tensor, *tensors: Tensor) -> Any:
            hidden, rest = list(tensors[: len(listed)]), tensors[len(listed) :]
            return _CELLS[self.kind](x, hidden if self.kind == "lstm" else hidden[0], *rest)

        new = apply(self.kind, step, inputs, *listed, *weights)
        return (new[0], (new[0], new[1])) if self.kind == "lstm" else (new, new)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(TorchCell):
    """h = activation(weight_ih · x + bias_ih + weight_hh · h + bias_hh)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(rnn_kind("SimpleRNNCell", activation), input_size, hidden_size, attrs)


class LSTMCell(TorchCell):
    """One step of an LSTM; the states are (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            "lstm", input_size, hidden_size, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        )


class GRUCell(TorchCell):
    """One step of a GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            "gru", input_size, hidden_size, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        )
