"""Normalisation: values, gradients, moving statistics, names, what a program for testing computes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers
from argosy.framework.layer import ParamAttr

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


def image(batch: int, seed: int = 0) -> np.ndarray[Any, Any]:
    array = np.random.default_rng(seed).standard_normal((batch, 3, 4, 5)) * 2 + 1
    return array.astype("float32")


# --- batch_norm ---------------------------------------------------------------------------------------------


def batch_norm(p: Values, x: torch.Tensor, name: str = "batch_norm_0", eps: float = 1e-5) -> torch.Tensor:
    return F.batch_norm(x, None, None, p[f"{name}.w_0"], p[f"{name}.b_0"], training=True, eps=eps)


@pytest.mark.parametrize("shape", [(None, 3, 4, 5), (None, 3), (None, 3, 2), (None, 3, 2, 2, 2)])
def test_batch_norm_uses_the_statistics_of_the_batch(layer_agrees: Agree, shape: Any) -> None:
    layer_agrees(layers.batch_norm, batch_norm, shape, rtol=1e-4)


def test_channels_may_come_last(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.batch_norm(x, data_layout="NHWC", epsilon=1e-3),
        lambda p, x: batch_norm(p, x.movedim(-1, 1), eps=1e-3).movedim(1, -1),
        (None, 4, 5, 3),
        rtol=1e-4,
    )


def test_the_names_of_batch_norm_are_paddle_s() -> None:
    out = layers.batch_norm(layers.data("x", [3, 4, 5]), act="relu", name="bn_conv1.output.1")
    program = default_main_program()
    values = [f"bn_conv1.output.1.tmp_{i}" for i in range(4)]
    assert [program.var(name).shape for name in values] == [(3,), (3,), (-1, 3, 4, 5), (-1, 3, 4, 5)]
    assert out.name == values[3]
    layers.batch_norm(layers.data("y", [3]))
    assert [p.name for p in program.all_parameters()][2:] == ["batch_norm_0.w_0", "batch_norm_0.b_0"]
    assert {"batch_norm_0.w_1", "batch_norm_0.w_2"} <= program.persistables().keys()


def test_saved_mean_and_inverse_deviation_are_those_of_the_batch() -> None:
    layers.batch_norm(layers.data("x", [3, 4, 5]))
    exe = Executor()
    exe.run(default_startup_program())
    mean, invstd = exe.run(feed={"x": image(4)}, fetch_list=["batch_norm_0.tmp_0", "batch_norm_0.tmp_1"])
    np.testing.assert_allclose(mean, image(4).mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(invstd, (image(4).var((0, 2, 3)) + 1e-5) ** -0.5, rtol=1e-5)


def test_names_of_parameters_and_statistics_may_be_given() -> None:
    layers.batch_norm(
        layers.data("x", [3, 4, 5]),
        param_attr=ParamAttr(name="bn_scale"),
        bias_attr=ParamAttr("bn_offset"),
        moving_mean_name="bn_mean",
        moving_variance_name="bn_variance",
    )
    assert list(default_main_program().persistables()) == ["bn_scale", "bn_offset", "bn_mean", "bn_variance"]


def test_the_moving_statistics_follow_with_momentum_and_the_biased_variance() -> None:
    out = layers.batch_norm(layers.data("x", [3, 4, 5]), momentum=0.8)
    exe = Executor()
    exe.run(default_startup_program())
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(3):
        x = image(step + 2, step)
        exe.run(feed={"x": x}, fetch_list=[out])
        mean = 0.8 * mean + 0.2 * x.mean((0, 2, 3))
        variance = 0.8 * variance + 0.2 * x.var((0, 2, 3))
    np.testing.assert_allclose(global_scope().get("batch_norm_0.w_1"), mean, rtol=1e-5)
    np.testing.assert_allclose(global_scope().get("batch_norm_0.w_2"), variance, rtol=1e-5)


def test_a_program_for_testing_normalises_as_torch_s_eval_and_leaves_the_statistics_alone() -> None:
    out = layers.batch_norm(layers.data("x", [3, 4, 5]), act="relu")
    append_backward(layers.mean(out))
    testing = default_main_program().clone(for_test=True)
    exe = Executor()
    exe.run(default_startup_program())
    module = torch.nn.BatchNorm2d(3).eval()
    scope = global_scope()
    state = {"weight": "w_0", "bias": "b_0", "running_mean": "w_1", "running_var": "w_2"}
    for key, suffix in state.items():
        scope.get(f"batch_norm_0.{suffix}").uniform_(0.5, 2.0)
        getattr(module, key).data.copy_(scope.get(f"batch_norm_0.{suffix}"))
    for batch in (1, 3):
        fetched = exe.run(testing, {"x": image(batch)}, [out.name])[0]
        expected = torch.relu(module(torch.from_numpy(image(batch)))).detach()
        np.testing.assert_allclose(fetched, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(scope.get("batch_norm_0.w_1"), module.running_mean)  # type: ignore[arg-type]  # not None


@pytest.mark.parametrize("how", [{"is_test": True}, {"use_global_stats": True}])
def test_moving_statistics_may_be_used_from_the_start(layer_agrees: Agree, how: dict[str, Any]) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        mean, variance = torch.zeros(3), torch.ones(3)
        return F.batch_norm(x, mean, variance, p["batch_norm_0.w_0"], p["batch_norm_0.b_0"])

    layer_agrees(lambda x: layers.batch_norm(x, **how), expect, (None, 3, 4, 5), rtol=1e-4)
    assert layers.batch_norm(layers.data("x", [3]), **how).name == "batch_norm_0.tmp_2"


def test_batch_norm_refuses_what_it_cannot_do() -> None:
    x = layers.data("x", [3, 4, 5])
    with pytest.raises(ConfigError, match=r"momentum=1\.5; give a number from 0 to 1"):
        layers.batch_norm(x, momentum=1.5)
    with pytest.raises(ConfigError, match="data_layout='CHWN' is not known"):
        layers.batch_norm(x, data_layout="CHWN")


# --- layer_norm, group_norm, instance_norm ------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_norm_normalises_from_an_axis_on(layer_agrees: Agree, axis: int) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        shape = x.shape[axis:]
        assert p["layer_norm_0.w_0"].ndim == 1
        return F.layer_norm(x, shape, p["layer_norm_0.w_0"].view(shape), p["layer_norm_0.b_0"].view(shape))

    layer_agrees(lambda x: layers.layer_norm(x, begin_norm_axis=axis), expect, (None, 3, 4), rtol=1e-4)


def test_layer_norm_without_scale_or_shift(layer_agrees: Agree, caplog: pytest.LogCaptureFixture) -> None:
    layer_agrees(
        lambda x: layers.layer_norm(x, scale=False, epsilon=0.1),
        lambda p, x: F.layer_norm(x, (4,), None, p["layer_norm_0.b_0"], 0.1),
        (None, 4),
    )
    out = layers.layer_norm(layers.data("x", [4]), scale=False, shift=False, act="relu")
    assert out.name == "layer_norm_0.tmp_3"
    assert not default_main_program().all_parameters()
    layers.layer_norm(layers.data("x", [4]), shift=False, bias_attr="unused")
    assert "bias_attr='unused' has no effect: the parameter does not exist" in caplog.text


def test_group_norm_is_torch_s(layer_agrees: Agree) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.group_norm(x, 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"]))

    layer_agrees(lambda x: layers.group_norm(x, 2, act="relu"), expect, (None, 4, 3, 2), rtol=1e-4)
    layer_agrees(
        lambda x: layers.group_norm(x, 2, act="relu", data_layout="NHWC"),
        lambda p, x: expect(p, x.movedim(-1, 1)).movedim(1, -1),
        (None, 3, 2, 4),
        rtol=1e-4,
    )


def test_instance_norm_is_torch_s(layer_agrees: Agree) -> None:
    layer_agrees(
        layers.instance_norm,
        lambda p, x: F.instance_norm(x, weight=p["instance_norm_0.w_0"], bias=p["instance_norm_0.b_0"]),
        (None, 3, 4, 5),
        rtol=1e-4,
    )
    layer_agrees(
        lambda x: layers.instance_norm(x, param_attr=False, bias_attr=False),
        lambda p, x: F.instance_norm(x),
        (None, 3, 4, 5),
        rtol=1e-4,
    )


def test_the_outputs_of_norms_come_third() -> None:
    x = layers.data("x", [4, 3, 2])
    actual = [layers.layer_norm(x), layers.group_norm(x, 2), layers.instance_norm(x)]
    assert [v.name for v in actual] == [f"{k}_norm_0.tmp_2" for k in ("layer", "group", "instance")]


def test_norms_refuse_what_does_not_fit() -> None:
    x = layers.data("x", [3, 4])
    with pytest.raises(ConfigError, match="begin_norm_axis=3 of a variable with 3 dimensions; use 1 to 2"):
        layers.layer_norm(x, begin_norm_axis=3)
    with pytest.raises(ConfigError, match="3 channels do not divide into 2 groups"):
        layers.group_norm(x, 2)
    with pytest.raises(ConfigError, match="set both to False or none"):
        layers.instance_norm(x, param_attr=False)


def test_16_bit_inputs_have_32_bit_parameters() -> None:
    layers.batch_norm(layers.data("x", [3], dtype="bfloat16"))
    assert {v.dtype for v in default_main_program().persistables().values()} == {torch.float32}


# --- norms of vectors ---------------------------------------------------------------------------------------


def test_l2_normalize_adds_epsilon_to_the_sum_of_squares(agree: Agree) -> None:
    agree(
        lambda x: layers.l2_normalize(x, axis=1, epsilon=0.1),
        lambda x: x / (x.square().sum(1, keepdim=True) + 0.1).sqrt(),
        (None, 3, 2),
    )
    agree(lambda x: layers.l2_normalize(x, None), lambda x: F.normalize(x, dim=-1), (None, 3))
    agree(lambda x: layers.l2_normalize(x, 1), lambda x: F.normalize(x, dim=0), (None,))


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clip_by_norm_shortens_what_is_too_long(agree: Agree, limit: float) -> None:
    agree(
        lambda x: layers.clip_by_norm(x, limit),
        lambda x: x * (limit / x.norm().clamp(min=limit)),
        (None, 3),
    )
    with pytest.raises(ConfigError, match="max_norm=0"):
        layers.clip_by_norm(layers.data("x", [3]), 0)
