"""Recurrent layers are torch's modules with the same weights; RNN and BiRNN run any cell."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import nn
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope

Agrees = Callable[..., None]


def torch_module(layer: Any, module: torch.nn.Module) -> torch.nn.Module:
    """The torch module with the values that the layer's parameters have in the scope."""
    values = {name: global_scope().get(p.name).clone() for name, p in layer.named_parameters()}
    module.load_state_dict(values)
    return module


def outputs(variables: list[Any], feed: dict[str, Any]) -> list[torch.Tensor]:
    exe = Executor()
    exe.run(default_startup_program())
    return [torch.from_numpy(value) for value in exe.run(feed=feed, fetch_list=variables)]


def test_layers_are_torch_s_with_any_number_of_steps() -> None:
    x = default_main_program().data("x", [None, None, 3], "float32")
    cases = [
        (
            nn.LSTM(3, 4, num_layers=2, direction="bidirect"),
            torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
        ),
        (nn.GRU(3, 4, time_major=True), torch.nn.GRU(3, 4)),
        (nn.SimpleRNN(3, 4, activation="relu"), torch.nn.RNN(3, 4, nonlinearity="relu", batch_first=True)),
        (
            nn.GRU(3, 4, bias_ih_attr=False, bias_hh_attr=False),
            torch.nn.GRU(3, 4, bias=False, batch_first=True),
        ),
    ]
    results = [layer(x) for layer, _ in cases]
    flat = [v for out, last in results for v in (out, *(last if isinstance(last, tuple) else (last,)))]
    array = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")
    fetched = iter(outputs(flat, {"x": array}))
    for layer, module in cases:
        out, last = torch_module(layer, module)(torch.from_numpy(array))
        for expected in (out, *(last if isinstance(last, tuple) else (last,))):
            torch.testing.assert_close(next(fetched), expected.detach(), rtol=1e-4, atol=1e-5)


def test_cells_and_the_layers_that_run_them() -> None:
    program = default_main_program()
    x, step = program.data("x", [None, 5, 3], "float32"), program.data("step", [None, 3], "float32")
    lstm, gru, plain = nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.SimpleRNNCell(3, 4)
    backwards = nn.GRUCell(3, 4)
    both, (state, _) = nn.BiRNN(gru, backwards)(x)
    variables = [
        *lstm(step)[1],
        gru(step)[0],
        plain(step)[0],
        nn.RNN(lstm)(x)[1][1],
        both,
        state,
        nn.RNN(Doubled(gru), is_reverse=True)(x)[0],
    ]
    array = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")
    got = outputs(variables, {"x": array, "step": array[:, 0]})
    t = torch.from_numpy(array)
    cells = [
        torch_module(lstm, torch.nn.LSTMCell(3, 4)),
        torch_module(gru, torch.nn.GRUCell(3, 4)),
        torch_module(plain, torch.nn.RNNCell(3, 4)),
        torch_module(backwards, torch.nn.GRUCell(3, 4)),
    ]
    h: Any = None
    for i in range(5):
        h = cells[0](t[:, i], h)
    forward, backward = unrolled(cells[1], t), unrolled(cells[3], t.flip(1)).flip(1)
    wanted = [
        *cells[0](t[:, 0]),
        cells[1](t[:, 0]),
        cells[2](t[:, 0]),
        h[1],
        torch.cat([forward, backward], -1),
        forward[:, -1],
        2 * unrolled(cells[1], t.flip(1)).flip(1),
    ]
    for value, expected in zip(got, wanted, strict=True):
        torch.testing.assert_close(value, expected.detach(), rtol=1e-4, atol=1e-5)


class Doubled(nn.RNNCellBase):
    """A cell of a user: twice the output of another one."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    @property
    def state_shape(self) -> Any:
        return (4,)

    def forward(self, inputs: Any, states: Any) -> Any:
        out, states = self.cell(inputs, states)
        return out * 2, states


def unrolled(cell: Any, x: torch.Tensor) -> torch.Tensor:
    state, outs = None, []
    for i in range(x.shape[1]):
        state = cell(x[:, i], state)
        outs.append(state)
    return torch.stack(outs, 1)


def test_gradients_reach_the_weights(layer_agrees: Agrees) -> None:
    def expected(values: dict[str, torch.Tensor], x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.gru(x, h, list(values.values()), True, 1, 0.0, False, False, True)[0]

    class First(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4)

        def forward(self, x: Any, h: Any) -> Any:
            return self.gru(x, h)[0]

    layer_agrees(First, expected, (None, 5, 3), (1, None, 4))


def test_wrong_arguments_raise() -> None:
    x = default_main_program().data("x", [None, None, 3], "float32")
    for call, message in (
        (lambda: nn.LSTM(3, 4, direction="backward"), "use 'forward' or 'bidirect'"),
        (lambda: nn.SimpleRNN(3, 4, activation="gelu"), "use 'tanh' or 'relu'"),
        (lambda: nn.LSTM(3, 4)(x, sequence_length=x), "sequence_mask"),
        (lambda: nn.LSTM(3, 4, bias_ih_attr=False)(x), "set both to False"),
        (lambda: nn.GRUCell(3, 0), "use 1 or more"),
        (lambda: nn.RNN(Doubled(nn.GRUCell(3, 4)))(x), "is unrolled"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
