"""linear, dropout, padding, resizing, similarity."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional

Agree = Callable[..., None]


@pytest.mark.parametrize("shape", [(None, 3), (None, 2, 3)])
def test_linear_has_its_weight_as_in_times_out(agree: Agree, shape: Any) -> None:
    agree(functional.linear, lambda x, w, b: x @ w + b, shape, (3, 4), (4,))
    agree(functional.linear, lambda x, w: x @ w, shape, (3, 4))


def test_bilinear_is_torch_s(agree: Agree) -> None:
    feeds = ((None, 2), (None, 3), (4, 2, 3))
    agree(functional.bilinear, lambda x, y, w, b: F.bilinear(x, y, w, b[0]), *feeds, (1, 4))
    agree(functional.bilinear, F.bilinear, *feeds)


# --- dropout ------------------------------------------------------------------------------------------------


def run_dropout(training: bool = True, **how: Any) -> tuple[Any, Any, Any]:
    """What a program with dropout of ones gives, its gradient, and what its clone for testing gives."""
    x = default_main_program().data("x", [None, 3, 40], "float32")
    x.stop_gradient = False
    out = functional.dropout(x, training=training, **how) * 1.0
    (grad,) = gradients(out, x)
    fed = {"x": np.ones((50, 3, 40), "float32")}
    fetched, slope = Executor().run(default_main_program(), fed, [out, grad])
    (tested,) = Executor().run(default_main_program().clone(for_test=True), fed, [out.name])
    return fetched, slope, tested


@pytest.mark.parametrize(
    ("mode", "kept", "tested"), [("upscale_in_train", 4.0, 1.0), ("downscale_in_infer", 1.0, 0.25)]
)
def test_dropout_keeps_a_share_and_the_clone_for_testing_none(mode: str, kept: float, tested: float) -> None:
    actual, slope, in_test = run_dropout(p=0.75, mode=mode)
    assert set(np.unique(actual)) == {0.0, kept}
    assert abs((actual > 0).mean() - 0.25) < 0.03
    np.testing.assert_array_equal(slope, actual)
    np.testing.assert_allclose(in_test, np.full_like(actual, tested))


@pytest.mark.parametrize(("mode", "expected"), [("upscale_in_train", 1.0), ("downscale_in_infer", 0.25)])
def test_dropout_without_training_is_what_the_clone_gives(mode: str, expected: float) -> None:
    for actual in run_dropout(training=False, p=0.75, mode=mode):
        np.testing.assert_allclose(actual, np.full_like(actual, expected))


@pytest.mark.parametrize("mode", ["upscale_in_train", "downscale_in_infer"])
def test_dropout_of_nothing_and_of_everything(mode: str) -> None:
    x = tensor.ones([4])
    nothing, everything = (functional.dropout(x, p, mode=mode) for p in (0.0, 1.0))
    fetched = Executor().run(default_main_program(), {}, [nothing, everything])
    np.testing.assert_array_equal(fetched[0], np.ones(4))
    np.testing.assert_array_equal(fetched[1], np.zeros(4))


def test_dropout_along_an_axis_drops_whole_slices() -> None:
    actual, slope, tested = run_dropout(p=0.5, axis=[0, 1])
    assert (actual == actual[:, :, :1]).all()
    assert {0.0, 2.0} == set(np.unique(actual))
    np.testing.assert_array_equal(slope, actual)
    np.testing.assert_array_equal(tested, np.ones_like(actual))


@pytest.mark.parametrize(
    ("function", "shape", "data_format", "same_along"),
    [
        (functional.dropout2d, [8, 16, 2, 3], "NCHW", (2, 3)),
        (functional.dropout2d, [8, 2, 3, 16], "NHWC", (1, 2)),
        (functional.dropout3d, [8, 16, 2, 2, 2], "NCDHW", (2, 3, 4)),
        (functional.dropout3d, [8, 2, 2, 2, 16], "NDHWC", (1, 2, 3)),
    ],
)
def test_dropout_of_channels(
    function: Callable[..., Any], shape: list[int], data_format: str, same_along: Any
) -> None:
    out = function(tensor.ones(shape), 0.5, data_format=data_format)
    (fetched,) = Executor().run(default_main_program(), {}, [out])
    np.testing.assert_array_equal(fetched.max(same_along), fetched.min(same_along))
    assert set(np.unique(fetched)) == {0.0, 2.0}


def test_dropout_refuses_what_is_no_probability_or_mode() -> None:
    with pytest.raises(ConfigError, match="probability"):
        functional.dropout(tensor.ones([2]), 1.5)
    with pytest.raises(ConfigError, match="upscale_in_train"):
        functional.dropout(tensor.ones([2]), mode="upscale")


# --- padding and resizing -----------------------------------------------------------------------------------

MODES = ["constant", "reflect", "replicate", "circular"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("shape", "pad", "data_format"),
    [
        ((None, 2, 5), [1, 2], "NCL"),
        ((None, 4, 5, 2), [1, 2, 0, 3], "NHWC"),
        ((None, 2, 4, 4, 3), [1, 0, 2, 1, 1, 1], "NCDHW"),
    ],
)
def test_padding_is_torch_s(agree: Agree, mode: str, shape: Any, pad: list[int], data_format: str) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        if data_format[-1] == "C":
            return F.pad(x.movedim(-1, 1), pad, mode).movedim(1, -1)
        return F.pad(x, pad, mode)

    agree(lambda x: functional.pad(x, pad, mode, data_format=data_format), expect, shape)


def test_padding_has_short_and_long_forms(agree: Agree) -> None:
    x = (None, 2, 4, 5)
    agree(lambda x: functional.pad(x, 1, value=7.0), lambda x: F.pad(x, [1, 1, 1, 1], value=7.0), x)
    agree(lambda x: functional.pad(x, [1, 2]), lambda x: F.pad(x, [1, 2]), x)
    agree(lambda x: functional.pad(x, [1, 2], "reflect"), lambda x: F.pad(x, [1, 2, 0, 0], "reflect"), x)
    agree(
        lambda x: functional.pad(x, [0, 1, 2, 3], value=1.0),
        lambda x: F.pad(x, [2, 3, 0, 1], value=1.0),
        (None, 3),
    )
    agree(
        lambda x: functional.pad(x, [0, 0, 1, 0, 0, 2, 3, 0]),
        lambda x: F.pad(x, [3, 0, 0, 2, 1, 0, 0, 0]),
        x,
    )


def test_padding_names_what_does_not_fit() -> None:
    x = tensor.ones([1, 2, 4, 5])
    with pytest.raises(ConfigError, match="circular"):
        functional.pad(x, 1, "wrap")
    with pytest.raises(ConfigError, match="3 numbers"):
        functional.pad(x, [1, 2, 3])
    with pytest.raises(ConfigError, match="NHWC"):
        functional.pad(x, 1, data_format="CHWN")


RESIZING: list[tuple[str, Any, dict[str, Any]]] = [
    ("nearest", (None, 2, 4, 5), {"scale_factor": 1.7}),
    ("nearest", (None, 2, 4), {"size": 3}),
    ("bilinear", (None, 2, 4, 5), {"scale_factor": 1.7}),
    ("bilinear", (None, 2, 4, 5), {"size": 3}),
    ("bicubic", (None, 2, 4, 5), {"scale_factor": 1.7}),
    ("area", (None, 2, 4, 5), {"size": [3, 7]}),
    ("linear", (None, 2, 4), {"scale_factor": 1.7}),
    ("trilinear", (None, 2, 3, 3, 3), {"size": 5}),
]


@pytest.mark.parametrize(("mode", "shape", "how"), RESIZING)
def test_resizing_is_torch_s(agree: Agree, mode: str, shape: Any, how: dict[str, Any]) -> None:
    agree(
        lambda x: functional.interpolate(x, mode=mode, **how),
        lambda x: F.interpolate(x, mode=mode, **how),
        shape,
        rtol=1e-4,
    )


def test_resizing_aligns_corners_and_takes_channels_last(agree: Agree) -> None:
    agree(
        lambda x: functional.upsample(x, [7, 3], mode="BILINEAR", align_corners=True, data_format="NHWC"),
        lambda x: F.interpolate(x.movedim(-1, 1), (7, 3), mode="bilinear", align_corners=True).movedim(1, -1),
        (None, 4, 5, 2),
        rtol=1e-4,
    )
    agree(
        lambda x: functional.interpolate(x, scale_factor=[2, 3]),
        lambda x: F.interpolate(x, scale_factor=(2, 3)),
        (None, 2, 4, 5),
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "one of the two"),
        ({"size": 2, "scale_factor": 2}, "one of the two"),
        ({"size": 2, "mode": "sinc"}, "sinc"),
        ({"size": 2, "mode": "bilinear", "align_mode": 1}, "align_mode=0"),
        ({"size": 2, "align_corners": True}, "align_corners"),
        ({"size": [2, 2, 2]}, "size"),
        ({"size": 2, "data_format": "NWC"}, "NCHW or NHWC"),
    ],
)
def test_resizing_names_what_does_not_fit(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        functional.interpolate(tensor.ones([1, 2, 4, 5]), **how)


def test_unfold_is_torch_s(agree: Agree) -> None:
    x = (None, 2, 5, 6)
    agree(
        lambda x: functional.unfold(x, [2, 3], 2, 1, [2, 1]), lambda x: F.unfold(x, (2, 3), (2, 1), 1, 2), x
    )
    agree(
        lambda x: functional.unfold(x, 2, paddings=[1, 0, 2, 3]),
        lambda x: F.unfold(F.pad(x, [0, 3, 1, 2]), 2),
        x,
    )


def test_pixel_shuffle_is_torch_s(agree: Agree) -> None:
    agree(lambda x: functional.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), (None, 8, 2, 3))
    agree(
        lambda x: functional.pixel_shuffle(x, 2, "NHWC"),
        lambda x: F.pixel_shuffle(x.movedim(-1, 1), 2).movedim(1, -1),
        (None, 2, 3, 8),
    )


# --- similarity and labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, 0])
def test_cosine_similarity_is_torch_s(agree: Agree, axis: int) -> None:
    agree(
        lambda x, y: functional.cosine_similarity(x, y, axis),
        lambda x, y: F.cosine_similarity(x, y, axis),
        (None, 3, 2),
        (None, 3, 2),
        rtol=1e-4,
    )


def test_cosine_similarity_of_nothing_is_zero() -> None:
    out = functional.cosine_similarity(tensor.zeros([1, 3]), tensor.ones([1, 3]))
    (fetched,) = Executor().run(default_main_program(), {}, [out])
    assert fetched.tolist() == [0.0]


@pytest.mark.parametrize("p", [1, 2, 3.0])
def test_normalize_is_torch_s(agree: Agree, p: float) -> None:
    agree(lambda x: functional.normalize(x, p, 1), lambda x: F.normalize(x, p, 1), (None, 3, 2))


def test_label_smooth_mixes_in_a_prior(agree: Agree) -> None:
    label, prior = ((None, 4), "unit"), ((1, 4), "unit")
    agree(lambda x: functional.label_smooth(x, epsilon=0.2), lambda x: 0.8 * x + 0.2 / 4, label)
    agree(functional.label_smooth, lambda x, p: 0.9 * x + 0.1 * p, label, prior)
