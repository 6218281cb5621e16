"""lstm_unit, gru_unit and lstm against torch and their formulas."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers

Values = dict[str, torch.Tensor]


def test_a_step_of_an_lstm_and_of_a_gru(layer_agrees: Callable[..., None]) -> None:
    def lstm(p: Values, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        i, f, o, g = (torch.cat([x, h], 1) @ p["w"] + p["b"]).chunk(4, 1)
        cell = torch.sigmoid(f + 0.5) * c + i.sigmoid() * g.tanh()
        return torch.cat([o.sigmoid() * cell.tanh(), cell], 1)

    layer_agrees(
        lambda x, h, c: layers.concat(layers.lstm_unit(x, h, c, 0.5, "w", "b"), 1),
        lstm,
        (None, 2),
        (None, 3),
        (None, 3),
        rtol=1e-4,
    )

    def gru(p: Values, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        x = x + p["b"]
        u = torch.sigmoid(x[:, :3] + h @ p["w"][:, :3])
        r = torch.sigmoid(x[:, 3:6] + h @ p["w"][:, 3:6])
        c = torch.tanh(x[:, 6:] + (r * h) @ p["w"][:, 6:])
        return torch.cat([(1 - u) * h + u * c, r * h, u, r, c], 1)

    layer_agrees(
        lambda x, h: layers.concat(layers.gru_unit(x, h, 9, "w", "b"), 1),
        gru,
        (None, 9),
        (None, 3),
        rtol=1e-4,
    )


def test_a_whole_sequence_is_torch_s_lstm() -> None:
    program = default_main_program()
    x = program.data("x", [None, 2, 3], "float32")
    h, c = (program.data(name, [4, 2, 5], "float32") for name in "hc")
    outs = layers.lstm(x, h, c, 6, 5, 2, is_bidirec=True, name="net")
    exe = Executor()
    exe.run(default_startup_program())
    random = np.random.default_rng(0)
    feed = {"x": random.standard_normal((6, 2, 3)), "h": random.standard_normal((4, 2, 5))}
    feed = {name: array.astype("float32") for name, array in {**feed, "c": feed["h"] * 0.5}.items()}
    got = exe.run(feed=feed, fetch_list=list(outs))
    module = torch.nn.LSTM(3, 5, 2, bidirectional=True)
    flat = global_scope().get(outs[0].program.all_parameters()[0].name).clone()
    weights = [p for name, p in module.named_parameters() if "weight" in name]
    biases = [p for name, p in module.named_parameters() if "bias" in name]
    assert flat.numel() == sum(p.numel() for p in module.parameters())
    with torch.no_grad():
        for parameter, values in zip(
            [*weights, *biases], flat.split([p.numel() for p in [*weights, *biases]]), strict=True
        ):
            parameter.copy_(values.reshape(parameter.shape))
        tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
        expected, (last_h, last_c) = module(tensors["x"], (tensors["h"], tensors["c"]))
    for value, wanted in zip(got, (expected, last_h, last_c), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


def test_wrong_arguments_raise() -> None:
    x = default_main_program().data("x", [None, 9], "float32")
    for call, message in (
        (lambda: layers.gru_unit(x, x, 10), "not divisible by 3"),
        (lambda: layers.gru_unit(x, x, 9, activation="gelu"), "use identity"),
        (lambda: layers.lstm(x, x, x, 3, 4, 1, seed=3), "random_seed"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
