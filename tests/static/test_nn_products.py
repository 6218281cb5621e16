"""bilinear_tensor_product, row_conv, spectral_norm, nce and conv3d_transpose against torch."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.static import nn

_layer_agrees = run_path(str(Path(__file__).parents[1] / "fluid" / "conftest.py"))["_layer_agrees"]
Values = dict[str, torch.Tensor]


def test_bilinear_products_and_transposed_convolutions() -> None:
    _layer_agrees(
        lambda x, y: nn.bilinear_tensor_product(x, y, 4, param_attr="w", bias_attr="b"),
        lambda p, x, y: F.bilinear(x, y, p["w"], p["b"].reshape(-1)),
        (None, 3),
        (None, 2),
    )
    _layer_agrees(
        lambda x: nn.conv3d_transpose(
            x, 4, filter_size=3, stride=2, dilation=1, groups=2, param_attr="w", bias_attr="b"
        ),
        lambda p, x: F.conv_transpose3d(x, p["w"], p["b"], 2, groups=2),
        (None, 2, 2, 3, 2),
        rtol=1e-4,
    )


def test_row_conv_looks_ahead() -> None:
    def expected(p: Values, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, [0, 0, 0, 2])
        return torch.relu(sum((padded[:, i : i + 5] * p["w"][i] for i in range(3)), torch.zeros(())))

    _layer_agrees(lambda x: nn.row_conv(x, 2, "w", act="relu"), expected, (None, 5, 3))


def test_spectral_norm_divides_by_the_estimated_singular_value() -> None:
    def expected(p: Values, weight: torch.Tensor) -> torch.Tensor:
        matrix = weight.transpose(0, 1).flatten(1)
        with torch.no_grad():
            v = F.normalize(matrix.T @ p["norm.w_0"], dim=0)
            u = F.normalize(matrix @ v, dim=0)
        return weight / (u @ matrix @ v)

    _layer_agrees(lambda x: nn.spectral_norm(x, dim=1, name="norm"), expected, (3, 2, 4), rtol=1e-4)
    weight = default_main_program().data("weight", [3, 4], "float32")
    out = nn.spectral_norm(weight, power_iters=50)
    exe = Executor()
    exe.run(default_startup_program())
    array = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    (got,) = exe.run(feed={"weight": array}, fetch_list=[out])
    np.testing.assert_allclose(np.linalg.svd(got)[1][0], 1.0, rtol=1e-4)


def nce_cost(scores: torch.Tensor, noise: torch.Tensor, label: int) -> torch.Tensor:
    """For two classes of which the noise is always class 1."""
    return -torch.log(scores[label] / (scores[label] + noise[label])) - 3 * torch.log(
        noise[1] / (scores[1] + noise[1])
    )


def test_nce_tells_the_label_from_noise() -> None:
    x, label = (
        default_main_program().data("x", [None, 3], "float32"),
        default_main_program().data("y", [None, 1], "int64"),
    )
    outs = [
        nn.nce(
            x,
            label,
            2,
            num_neg_samples=3,
            param_attr="w",
            bias_attr="b",
            sampler="custom_dist",
            custom_dist=[0.0, 1.0],
        ),
        nn.nce(x, label, 2, sampler="log_uniform"),
        nn.nce(x, label, 2),
    ]
    exe = Executor()
    exe.run(default_startup_program())
    rows = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    got, *others = exe.run(feed={"x": rows, "y": [[1], [1]]}, fetch_list=outs)
    weight, bias = global_scope().get("w").clone(), global_scope().get("b").clone()
    scores = torch.sigmoid(torch.from_numpy(rows) @ weight.T + bias.reshape(-1))
    noise = torch.tensor([0.0, 1.0]) * 3
    expected = torch.stack([nce_cost(row, noise, 1) for row in scores])
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-5)
    assert all(np.isfinite(other).all() and (other > 0).all() for other in others)


def test_wrong_arguments_raise() -> None:
    x: Any = default_main_program().data("x", [None, 3], "float32")
    for call, message in (
        (lambda: nn.row_conv(x, 2), r"give \[N, steps, D\]"),
        (lambda: nn.nce(x, x, 2, seed=1), "random_seed"),
        (lambda: nn.nce(x, x, 2, sampler="custom_dist"), "a probability for each of 2"),
        (lambda: nn.conv3d_transpose(x, 4, groups=2), "."),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
