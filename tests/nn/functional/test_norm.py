"""Normalisation: values, gradients, running statistics, what a program for testing does."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn import functional

Agree = Callable[..., None]


def statistics(channels: int) -> tuple[Any, Any]:
    return (
        create_state("mean", [channels], "float32", Constant(0.25)),
        create_state("var", [channels], "float32", Constant(2.0)),
    )


@pytest.mark.parametrize(
    ("shape", "data_format"),
    [
        ((None, 3), "NC"),
        ((None, 3, 4), "NCL"),
        ((None, 3, 4, 5), "NCHW"),
        ((None, 4, 5, 3), "NHWC"),
        ((None, 4, 3), "NLC"),
    ],
)
def test_training_normalises_with_the_batch(agree: Agree, shape: Any, data_format: str) -> None:
    channels_last = data_format[-1] == "C" and len(data_format) > 2

    def build(x: Any, w: Any, b: Any) -> Any:
        mean, var = tensor.zeros([3]), tensor.ones([3])
        return functional.batch_norm(x, mean, var, w, b, training=True, data_format=data_format)

    def expect(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = F.batch_norm(x.movedim(-1, 1) if channels_last else x, None, None, w, b, True)
        return out.movedim(1, -1) if channels_last else out

    agree(build, expect, shape, (3,), (3,), rtol=1e-4, batches=(5, 2))


@pytest.mark.parametrize("how", [{}, {"training": True, "use_global_stats": True}])
def test_testing_normalises_with_the_running_statistics(agree: Agree, how: dict[str, bool]) -> None:
    mean, var = np.array([0.1, 0.2, 0.3], "float32"), np.array([1, 2, 3], "float32")
    agree(
        lambda x, w, b: functional.batch_norm(x, tensor.to_tensor(mean), tensor.to_tensor(var), w, b, **how),
        lambda x, w, b: F.batch_norm(x, torch.from_numpy(mean), torch.from_numpy(var), w, b),
        (None, 3, 4),
        (3,),
        (3,),
        rtol=1e-4,
    )


def test_running_statistics_move_by_paddle_s_momentum_with_the_biased_variance() -> None:
    x = default_main_program().data("x", [None, 2, 3], "float32")
    mean, var = statistics(2)
    out = functional.batch_norm(x, mean, var, None, None, training=True, momentum=0.7)
    exe = Executor()
    exe.run(default_startup_program())
    fed = np.random.default_rng(0).standard_normal((4, 2, 3)).astype("float32")
    (fetched,) = exe.run(default_main_program(), {"x": fed}, [out])
    moved_mean = 0.7 * 0.25 + 0.3 * fed.mean((0, 2))
    moved_var = 0.7 * 2.0 + 0.3 * fed.var((0, 2))
    np.testing.assert_allclose(global_scope().get("mean"), moved_mean, rtol=1e-5)
    np.testing.assert_allclose(global_scope().get("var"), moved_var, rtol=1e-4)
    assert abs(fetched.mean()) < 1e-6

    (tested,) = exe.run(default_main_program().clone(for_test=True), {"x": fed}, [out.name])
    expected = (fed - moved_mean[:, None]) / np.sqrt(moved_var[:, None] + 1e-5)
    np.testing.assert_allclose(tested, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(global_scope().get("mean"), moved_mean, rtol=1e-5)


def test_global_statistics_stay_as_they_are() -> None:
    x = default_main_program().data("x", [None, 2], "float32")
    mean, var = statistics(2)
    out = functional.batch_norm(x, mean, var, None, None, training=True, use_global_stats=True)
    exe = Executor()
    exe.run(default_startup_program())
    exe.run(default_main_program(), {"x": np.ones((4, 2), "float32")}, [out])
    np.testing.assert_array_equal(global_scope().get("mean"), [0.25, 0.25])


@pytest.mark.parametrize("shape", [4, [4], (3, 4)])
@pytest.mark.parametrize("flat", [False, True])
def test_layer_norm_normalises_the_last_axes(agree: Agree, shape: Any, flat: bool) -> None:
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    weights = (int(np.prod(wanted)),) if flat else wanted
    agree(
        lambda x, w, b: functional.layer_norm(x, shape, w, b, 1e-3),
        lambda x, w, b: F.layer_norm(x, wanted, w.reshape(wanted), b.reshape(wanted), 1e-3),
        (None, 3, 4),
        weights,
        weights,
        rtol=1e-4,
    )


def test_layer_norm_works_without_weights(agree: Agree) -> None:
    agree(lambda x: functional.layer_norm(x, 4), lambda x: F.layer_norm(x, (4,)), (None, 3, 4), rtol=1e-4)


@pytest.mark.parametrize("shape", [(None, 4, 6), (None, 4, 3, 2)])
def test_instance_and_group_norm_are_torch_s(agree: Agree, shape: Any) -> None:
    agree(
        lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        shape,
        (4,),
        (4,),
        rtol=1e-4,
    )
    agree(
        lambda x, w, b: functional.group_norm(x, 2, 1e-3, w, b),
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3),
        shape,
        (4,),
        (4,),
        rtol=1e-4,
    )


def test_group_norm_takes_channels_last(agree: Agree) -> None:
    agree(
        lambda x: functional.group_norm(x, 2, data_format="NHWC"),
        lambda x: F.group_norm(x.movedim(-1, 1), 2).movedim(1, -1),
        (None, 3, 2, 4),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("size", "shape", "data_format"),
    [(2, (None, 4, 3), "NCL"), (3, (None, 3, 2, 4), "NHWC"), (5, (None, 4, 3), "NCL")],
)
def test_local_response_norm_is_torch_s(agree: Agree, size: int, shape: Any, data_format: str) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        if data_format == "NCL":
            return F.local_response_norm(x, size, 0.1, 0.7, 2.0)
        return F.local_response_norm(x.movedim(-1, 1), size, 0.1, 0.7, 2.0).movedim(1, -1)

    agree(lambda x: functional.local_response_norm(x, size, 0.1, 0.7, 2.0, data_format), expect, shape)


def test_wrong_arguments_are_named() -> None:
    x = tensor.ones([1, 4, 2, 2])
    with pytest.raises(ConfigError, match="3 groups"):
        functional.group_norm(x, 3)
    with pytest.raises(ConfigError, match="use_input_stats"):
        functional.instance_norm(x, use_input_stats=False)
    with pytest.raises(ConfigError, match="NCHW or NHWC"):
        functional.local_response_norm(x, 2, data_format="NWHC")
