"""Linear, Embedding, dropout: values, gradients, first values, attributes."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import nn, static, tensor
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.framework.initializer import TruncatedNormal
from argosy.framework.layer import ParamAttr

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


def test_linear_has_its_weight_the_other_way_round(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda: nn.Linear(3, 4), lambda p, x: x @ p["linear_0.w_0"] + p["linear_0.b_0"], (None, 2, 3)
    )
    layer_agrees(lambda: nn.Linear(3, 4, bias_attr=False), lambda p, x: x @ p["linear_0.w_0"], (None, 3))


def test_attributes_reach_the_parameters() -> None:
    attr = ParamAttr(name="SparseFeatFactors", initializer=TruncatedNormal(0.0, 1.0), learning_rate=0.5)
    layer = nn.Linear(200, 300, weight_attr=attr, bias_attr=ParamAttr(trainable=False))
    static.Executor().run(static.default_startup_program())
    assert global_scope().get("SparseFeatFactors").abs().max().item() <= 2
    assert (layer.weight.learning_rate, layer.bias.trainable) == (0.5, False)


def test_first_values_are_paddle_s() -> None:
    nn.Linear(100, 300)
    nn.Conv2D(16, 64, 3)
    nn.Embedding(300, 100)
    static.Executor().run(static.default_startup_program())
    scope = global_scope()
    assert scope.get("linear_0.w_0").abs().max().item() == pytest.approx(math.sqrt(6 / 400), rel=0.01)
    assert scope.get("conv2d_0.w_0").std().item() == pytest.approx(math.sqrt(2 / 144), rel=0.05)
    assert scope.get("embedding_0.w_0").abs().max().item() == pytest.approx(math.sqrt(6 / 400), rel=0.01)


def test_embedding_looks_rows_up(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda: nn.Embedding(7, 3, sparse=True),
        lambda p, ids: F.embedding(ids, p["embedding_0.w_0"]),
        ((None, 4), 7),
    )
    layer_agrees(
        lambda: nn.Embedding(7, 3, padding_idx=1),
        lambda p, ids: F.embedding(ids, p["embedding_0.w_0"]) * (ids != 1).unsqueeze(-1),
        ((None,), 7),
    )


def test_a_layer_that_is_called_twice_shares_its_weights(layer_agrees: Agree) -> None:
    def twice() -> Callable[..., Any]:
        layer = nn.Linear(3, 3)
        return lambda x: layer(layer(x))

    layer_agrees(
        twice,
        lambda p, x: (x @ p["linear_0.w_0"] + p["linear_0.b_0"]) @ p["linear_0.w_0"] + p["linear_0.b_0"],
        (None, 3),
    )


@pytest.mark.parametrize(
    ("make", "share", "dropped"),
    [
        (lambda: nn.Dropout(0.3), 0.7, None),
        (lambda: nn.Dropout(0.3, mode="downscale_in_infer"), 0.7, None),
        (lambda: nn.Dropout2D(0.3), 0.7, (2, 3)),
    ],
)
def test_dropout_draws_in_training_and_not_in_testing(make: Any, share: float, dropped: Any) -> None:
    x = static.data("x", [None, 20, 3, 2])
    layer = make()
    out = layer(x)
    layer.eval()
    testing = layer(x)
    fed = np.ones((50, 20, 3, 2), dtype="float32")
    kept, quiet = static.Executor().run(feed={"x": fed}, fetch_list=[out, testing])
    clone = static.default_main_program().clone(for_test=True)
    factor = 0.7 if getattr(layer, "mode", "") == "downscale_in_infer" else 1.0
    assert (kept != 0).mean() == pytest.approx(share, abs=0.05)
    np.testing.assert_allclose(kept[kept != 0], factor / 0.7, rtol=1e-5)
    np.testing.assert_allclose(quiet, fed * factor, rtol=1e-6)
    np.testing.assert_allclose(static.Executor().run(clone, {"x": fed}, [out.name])[0], quiet, rtol=1e-6)
    if dropped:
        assert (kept.max(dropped) == kept.min(dropped)).all()


@pytest.mark.parametrize(
    ("layer", "expected", "shape"),
    [
        (nn.Flatten(), lambda x: x.flatten(1), (None, 4, 3)),
        (nn.Pad1D([1, 2]), lambda x: F.pad(x, [1, 2]), (None, 4, 3)),
        (nn.Pad1D(1, "reflect"), lambda x: F.pad(x, [1, 1], "reflect"), (None, 4, 3)),
        (nn.Pad2D([1, 2, 3, 0], value=2.0), lambda x: F.pad(x, [1, 2, 3, 0], value=2.0), (None, 4, 7, 6)),
        (nn.Pad3D(1), lambda x: F.pad(x, [1] * 6), (None, 2, 4, 4, 6)),
        (nn.Upsample([9, 5]), lambda x: F.interpolate(x, (9, 5)), (None, 4, 7, 6)),
        (nn.UpsamplingNearest2D(scale_factor=2), lambda x: F.interpolate(x, scale_factor=2), (None, 4, 7, 6)),
        (
            nn.UpsamplingBilinear2D([9, 5]),
            lambda x: F.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
            (None, 4, 7, 6),
        ),
        (nn.PixelShuffle(2), lambda x: F.pixel_shuffle(x, 2), (None, 4, 7, 6)),
    ],
)
def test_shapes_and_sizes_are_changed_as_torch_does(
    agree: Agree, layer: nn.Layer, expected: Callable[..., torch.Tensor], shape: Any
) -> None:
    agree(layer, expected, shape, rtol=2e-5)


def test_the_cosine_of_two_inputs(agree: Agree) -> None:
    agree(nn.CosineSimilarity(), F.cosine_similarity, (None, 3), (None, 3))


def test_bilinear_unfold_and_dropouts() -> None:
    program = default_main_program()
    x = program.data("x", [None, 2, 3, 3], "float32")
    flat = program.data("flat", [None, 4], "float32")
    bilinear = nn.Bilinear(4, 4, 2)
    dropped = nn.Dropout3D(0.5)(tensor.unsqueeze(x, 2))
    alpha = nn.AlphaDropout(0.5)
    alpha.eval()
    outs = [bilinear(flat, flat), nn.Unfold(2)(x), dropped, alpha(flat)]
    exe = Executor()
    exe.run(default_startup_program())
    images, rows = np.ones((8, 2, 3, 3), "float32"), np.eye(4, dtype="float32")
    product, columns, channels, same = exe.run(feed={"x": images, "flat": rows}, fetch_list=outs)
    weight = global_scope().get(bilinear.weight.name)
    np.testing.assert_allclose(product, weight.diagonal(dim1=1, dim2=2).T, rtol=1e-5)
    assert columns.shape == (8, 8, 4)
    assert {tuple(np.unique(c)) for sample in channels for c in sample} == {(0.0,), (2.0,)}
    np.testing.assert_array_equal(same, rows)
