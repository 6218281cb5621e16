"""fc, embedding, prelu, products, dropout: values, gradients, names, what is refused."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers
from argosy.framework.initializer import NumpyArray
from argosy.framework.layer import ParamAttr

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


def names_of_parameters() -> list[str]:
    return [p.name for p in default_main_program().all_parameters()]


# --- fc -----------------------------------------------------------------------------------------------------


def test_fc_flattens_what_follows_the_batch(layer_agrees: Agree) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ p["fc_0.w_0"] + p["fc_0.b_0"]

    layer_agrees(lambda x: layers.fc(x, 4), expect, (None, 3))
    layer_agrees(lambda x: layers.fc(x, 4), expect, (None, 3, 2, 1))


def test_fc_keeps_the_dimensions_before_num_flatten_dims(layer_agrees: Agree) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ p["fc_0.w_0"] + p["fc_0.b_0"])

    layer_agrees(lambda x: layers.fc(x, 4, num_flatten_dims=2, act="tanh"), expect, (None, 3, 5))
    layer_agrees(lambda x: layers.fc(x, 4, num_flatten_dims=-1, act="tanh"), expect, (None, 3, 5))


def test_fc_without_bias_is_a_product(layer_agrees: Agree) -> None:
    layer_agrees(lambda x: layers.fc(x, 2, bias_attr=False), lambda p, x: x @ p["fc_0.w_0"], (None, 3))


def test_fc_adds_several_inputs_up(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x, y: layers.fc([x, y], 2),
        lambda p, x, y: x @ p["fc_0.w_0"] + y.flatten(1) @ p["fc_0.w_1"] + p["fc_0.b_0"],
        (None, 3),
        (None, 2, 2),
    )


def test_the_names_of_fc_are_paddle_s() -> None:
    x = layers.data("x", [3])
    assert layers.fc(x, 2).name == "fc_0.tmp_1"
    assert layers.fc(x, 2, bias_attr=False).name == "fc_1.tmp_0"
    assert layers.fc(x, 2, act="relu", name="head").name == "head.tmp_2"
    assert layers.fc([x, x], 2).name == "fc_2.tmp_3"
    expected = "fc_0.w_0 fc_0.b_0 fc_1.w_0 head.w_0 head.b_0 fc_2.w_0 fc_2.w_1 fc_2.b_0"
    assert names_of_parameters() == expected.split()


def test_the_product_and_the_bias_of_fc_are_one_operator() -> None:
    layers.fc(layers.data("x", [3]), 2)
    called = [n.name for n in default_main_program().graph.nodes if n.op == "call_function"]
    assert called == ["addmm"]


def test_fc_starts_from_xavier_s_uniform_numbers_and_a_bias_of_zero() -> None:
    layers.fc(layers.data("x", [300]), 200)
    Executor().run(default_startup_program())
    weight = global_scope().get("fc_0.w_0")
    limit = math.sqrt(6 / 500)
    assert 0.99 * limit < weight.abs().max().item() <= limit
    assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    assert not global_scope().get("fc_0.b_0").any()


def test_attributes_name_initialise_and_freeze_the_parameters_of_fc() -> None:
    weight = np.ones((3, 2), dtype="float32")
    attr = ParamAttr(name="mine", initializer=NumpyArray(weight), trainable=False)
    out = layers.fc(layers.data("x", [3]), 2, param_attr=attr, bias_attr="own_bias")
    exe = Executor()
    exe.run(default_startup_program())
    assert exe.run(feed={"x": np.ones((1, 3), dtype="float32")}, fetch_list=[out])[0].tolist() == [[3, 3]]
    assert names_of_parameters() == ["mine", "own_bias"]
    assert not default_main_program().var("mine").trainable


def test_two_layers_may_share_a_parameter() -> None:
    x = layers.data("x", [3])
    for _ in range(2):
        layers.fc(x, 3, param_attr=ParamAttr(name="shared"), bias_attr=False)
    assert names_of_parameters() == ["shared"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_flatten_dims": 2}, "num_flatten_dims=2 of an input with 2 dimensions; use 1 to 1"),
        ({"param_attr": ["a", "b"]}, "1 inputs and 2 param_attr"),
        ({"act": "rellu"}, "act='rellu' is not known; use one of"),
    ],
)
def test_fc_refuses_what_does_not_fit(arguments: dict[str, Any], message: str) -> None:
    x = layers.data("x", [3])
    with pytest.raises(ConfigError, match=message):
        layers.fc(x, 2, **arguments)


def test_fc_needs_the_size_that_it_multiplies_with() -> None:
    x = layers.data("x", [None, None])
    with pytest.raises(ConfigError, match="a parameter needs known sizes"):
        layers.fc(x, 2)


# --- embedding ----------------------------------------------------------------------------------------------


def test_embedding_drops_the_last_dimension_of_the_ids(layer_agrees: Agree) -> None:
    def expect(p: Values, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids.squeeze(-1), p["embedding_0.w_0"])

    layer_agrees(lambda ids: layers.embedding(ids, [7, 3]), expect, ((None, 1), 7))
    layer_agrees(lambda ids: layers.embedding(ids, [7, 3], is_sparse=True), expect, ((None, 4, 1), 7))


@pytest.mark.parametrize("padding", [2, -5])
def test_the_padding_of_an_embedding_is_zero_and_trains_nothing(layer_agrees: Agree, padding: int) -> None:
    def expect(p: Values, ids: torch.Tensor) -> torch.Tensor:
        keep = (ids != 2).float()
        return F.embedding(ids.squeeze(-1), p["embedding_0.w_0"]) * keep

    layer_agrees(lambda ids: layers.embedding(ids, [7, 3], padding_idx=padding), expect, ((None, 1), 7))


def test_embedding_refuses_what_it_cannot_do() -> None:
    ids = layers.data("ids", [1], dtype="int64")
    with pytest.raises(ConfigError, match="give \\[number of words, width\\]"):
        layers.embedding(ids, [7])
    with pytest.raises(ConfigError, match="padding_idx=7"):
        layers.embedding(ids, [7, 3], padding_idx=7)
    with pytest.raises(ConfigError, match="must end in a 1, which is dropped"):
        layers.embedding(layers.data("more", [2], dtype="int64"), [7, 3])


def test_an_embedding_may_be_of_another_dtype() -> None:
    out = layers.embedding(layers.data("ids", [1], dtype="int64"), [7, 3], dtype="float64")
    assert out.name == "embedding_0.tmp_0"
    assert out.dtype is torch.float64


# --- products and prelu -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "shape"), [("all", [1]), ("channel", [1, 3, 1, 1]), ("element", [1, 3, 2, 2])]
)
def test_prelu_learns_one_slope_one_a_channel_or_one_an_element(
    layer_agrees: Agree, mode: str, shape: list[int]
) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        assert list(p["prelu_0.w_0"].shape) == shape
        return torch.where(x > 0, x, p["prelu_0.w_0"] * x)

    layer_agrees(lambda x: layers.prelu(x, mode), expect, (None, 3, 2, 2))


def test_prelu_of_a_matrix_and_of_an_unknown_mode(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.prelu(x, "channel"), lambda p, x: F.prelu(x, p["prelu_0.w_0"].flatten()), (None, 3)
    )
    with pytest.raises(ConfigError, match="use 'all', 'channel' or 'element'"):
        layers.prelu(layers.data("x", [3]), "each")


def test_prelu_starts_at_a_quarter() -> None:
    layers.prelu(layers.data("x", [3]), "all")
    Executor().run(default_startup_program())
    assert global_scope().get("prelu_0.w_0").item() == 0.25


def test_mul_flattens_both_sides_to_matrices(agree: Agree) -> None:
    agree(layers.mul, torch.mm, (None, 3), (3, 2))
    agree(
        lambda x, y: layers.mul(x, y, x_num_col_dims=2, y_num_col_dims=2),
        lambda x, y: torch.einsum("abcd,cde->abe", x, y),
        (None, 2, 3, 4),
        (3, 4, 5),
    )


def test_matmul_transposes_and_scales(agree: Agree) -> None:
    agree(layers.matmul, torch.matmul, (None, 2, 3), (3, 4))
    agree(
        lambda x, y: layers.matmul(x, y, transpose_x=True, transpose_y=True, alpha=0.5),
        lambda x, y: 0.5 * x.mT @ y.mT,
        (None, 3, 2),
        (None, 4, 3),
    )
    agree(layers.matmul, lambda x, y: torch.dot(x, y).reshape(1), (None,), (None,))


def test_products_refuse_what_is_no_matrix() -> None:
    x = layers.data("x", [3], append_batch_size=False)
    with pytest.raises(ConfigError, match="transpose_x=True of a vector"):
        layers.matmul(x, x, transpose_x=True)
    with pytest.raises(ConfigError, match="x_num_col_dims=1 of a variable with 1 dimensions"):
        layers.mul(x, x)


# --- dropout ------------------------------------------------------------------------------------------------


def ran(out: Any, x: np.ndarray[Any, Any], for_test: bool = False) -> np.ndarray[Any, Any]:
    program = default_main_program().clone(for_test=True) if for_test else default_main_program()
    fetched: np.ndarray[Any, Any] = Executor().run(program, {"x": x}, [out.name])[0]
    return fetched


def test_dropout_keeps_as_it_is_in_training_and_scales_in_testing() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (200, 50)).astype("float32")
    out = layers.dropout(layers.data("x", [50]), 0.3)
    fetched = ran(out, x)
    nonzero = fetched != 0
    assert nonzero.mean() == pytest.approx(0.7, abs=0.02)
    np.testing.assert_allclose(fetched[nonzero], x[nonzero], rtol=1e-6)
    np.testing.assert_allclose(ran(out, x, for_test=True), 0.7 * x, rtol=1e-6)


def test_dropout_upscaled_in_training_does_nothing_in_testing() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (200, 50)).astype("float32")
    out = layers.dropout(layers.data("x", [50]), 0.3, dropout_implementation="upscale_in_train")
    fetched = ran(out, x)
    nonzero = fetched != 0
    assert nonzero.mean() == pytest.approx(0.7, abs=0.02)
    np.testing.assert_allclose(fetched[nonzero], x[nonzero] / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(ran(out, x, for_test=True), x)


@pytest.mark.parametrize(("way", "factor"), [("downgrade_in_infer", 0.7), ("upscale_in_train", 1.0)])
def test_dropout_built_for_testing_is_that_of_testing(agree: Agree, way: str, factor: float) -> None:
    agree(
        lambda x: layers.dropout(x, 0.3, is_test=True, dropout_implementation=way),
        lambda x: x * factor,
        (None, 3),
    )


def test_dropout_refuses_what_it_cannot_do() -> None:
    x = layers.data("x", [3])
    with pytest.raises(TypeError, match=r"dropout: seed is 'three'"):
        layers.dropout(x, 0.5, seed="three")
    with pytest.raises(ConfigError, match="use downgrade_in_infer or upscale_in_train"):
        layers.dropout(x, 0.5, dropout_implementation="upscale")
    with pytest.raises(ConfigError, match=r"p=1\.5 is no probability"):
        layers.dropout(x, 1.5)
