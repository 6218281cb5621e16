"""Normalisation with its parameters and statistics, against torch."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import nn, static
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("make", "name", "shape"),
    [
        (lambda: nn.BatchNorm1D(3), "batch_norm1d_0", (None, 3)),
        (lambda: nn.BatchNorm1D(3), "batch_norm1d_0", (None, 3, 4)),
        (lambda: nn.BatchNorm2D(3), "batch_norm2d_0", (None, 3, 4, 2)),
        (lambda: nn.BatchNorm3D(3), "batch_norm3d_0", (None, 3, 2, 2, 2)),
        (lambda: nn.BatchNorm(3), "batch_norm_0", (None, 3, 4, 2)),
    ],
)
def test_batch_norms_are_torch_s(layer_agrees: Agree, make: Any, name: str, shape: Any) -> None:
    layer_agrees(
        make,
        lambda p, x: F.batch_norm(x, None, None, p[f"{name}.w_0"], p[f"{name}.b_0"], True),
        shape,
        rtol=1e-4,
    )


def test_batch_norm_of_1_x_activates_and_names_its_statistics() -> None:
    layer = nn.BatchNorm(3, act="relu", moving_mean_name="mean", moving_variance_name="var")
    out = layer(static.data("x", [None, 3, 2, 2]))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    x = np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype("float32")
    fetched = exe.run(feed={"x": x}, fetch_list=[out])[0]
    assert fetched.min() == 0
    np.testing.assert_allclose(global_scope().get("mean"), 0.1 * x.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(global_scope().get("var"), 0.9 + 0.1 * x.var((0, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm2D(3, use_global_stats=True),
        lambda: nn.BatchNorm(3, use_global_stats=True),
        lambda: nn.BatchNorm(3, is_test=True),
    ],
)
def test_batch_norm_may_use_its_moving_statistics(agree: Agree, make: Any) -> None:
    x = static.data("x", [None, 3, 2, 2])
    out = make()(x)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    fed = np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype("float32")
    np.testing.assert_allclose(
        exe.run(feed={"x": fed}, fetch_list=[out])[0], fed / math.sqrt(1 + 1e-5), rtol=1e-5
    )


def test_trainable_statistics_use_the_batch_in_eval_too() -> None:
    layer = nn.BatchNorm(3, trainable_statistics=True)
    layer.eval()
    out = layer(static.data("x", [None, 3]))
    assert not layer.training
    exe = static.Executor()
    exe.run(static.default_startup_program())
    fetched = exe.run(
        feed={"x": np.random.default_rng(0).random((50, 3)).astype("float32")}, fetch_list=[out]
    )[0]
    np.testing.assert_allclose(fetched.mean(0), 0, atol=1e-5)


def test_a_clone_for_testing_is_torch_s_eval() -> None:
    layer = nn.BatchNorm2D(3)
    out = layer(static.data("x", [None, 3, 2, 2]))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    module = torch.nn.BatchNorm2d(3).eval()
    names = {"weight": "w_0", "bias": "b_0", "running_mean": "w_1", "running_var": "w_2"}
    for key, suffix in names.items():
        global_scope().get(f"batch_norm2d_0.{suffix}").uniform_(0.5, 2)
        getattr(module, key).data.copy_(global_scope().get(f"batch_norm2d_0.{suffix}"))
    testing = static.default_main_program().clone(for_test=True)
    x = np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype("float32")
    fetched = exe.run(testing, {"x": x}, [out.name])[0]
    np.testing.assert_allclose(fetched, module(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-6)


def test_other_norms_are_torch_s(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda: nn.LayerNorm([3, 2]),
        lambda p, x: F.layer_norm(x, (3, 2), p["layer_norm_0.w_0"], p["layer_norm_0.b_0"]),
        (None, 4, 3, 2),
        rtol=1e-4,
    )
    layer_agrees(
        lambda: nn.LayerNorm(4, epsilon=0.1, weight_attr=False, bias_attr=False),
        lambda p, x: F.layer_norm(x, (4,), eps=0.1),
        (None, 4),
    )
    layer_agrees(
        lambda: nn.GroupNorm(2, 4),
        lambda p, x: F.group_norm(x, 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"]),
        (None, 4, 3),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.InstanceNorm1D, (None, 3, 5)),
        (nn.InstanceNorm2D, (None, 3, 4, 2)),
        (nn.InstanceNorm3D, (None, 3, 2, 2, 2)),
    ],
)
def test_instance_norms_are_torch_s(layer_agrees: Agree, layer: Any, shape: Any) -> None:
    name = nn.layer.layers._snake_case(layer.__name__) + "_0"
    layer_agrees(
        lambda: layer(3),
        lambda p, x: F.instance_norm(x, weight=p[f"{name}.w_0"], bias=p[f"{name}.b_0"]),
        shape,
        rtol=1e-4,
    )


def test_prelu_has_a_slope_for_each_channel(layer_agrees: Agree) -> None:
    layer_agrees(lambda: nn.PReLU(3), lambda p, x: F.prelu(x, p["p_re_lu_0.w_0"]), (None, 3, 2))


def test_spectral_norm_and_local_response_norm() -> None:
    program = default_main_program()
    weight = program.data("weight", [3, 2, 4], "float32")
    images = program.data("images", [None, 4, 2, 2], "float32")
    outs = [nn.SpectralNorm([3, 2, 4], dim=1, power_iters=60)(weight), nn.LocalResponseNorm(3)(images)]
    exe = Executor()
    exe.run(default_startup_program())
    random = np.random.default_rng(0)
    feed = {
        "weight": random.standard_normal((3, 2, 4)).astype("float32"),
        "images": random.standard_normal((2, 4, 2, 2)).astype("float32"),
    }
    got, local = exe.run(feed=feed, fetch_list=outs)
    matrix = feed["weight"].transpose(1, 0, 2).reshape(2, -1)
    np.testing.assert_allclose(got, feed["weight"] / np.linalg.svd(matrix)[1][0], rtol=1e-4)
    expected = torch.nn.functional.local_response_norm(torch.from_numpy(feed["images"]), 3)
    np.testing.assert_allclose(local, expected, rtol=1e-5)
