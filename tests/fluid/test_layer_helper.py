"""A layer that is written with LayerHelper computes what its functions compute."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.fluid.layer_helper import LayerHelper
from argosy.framework.initializer import Constant


def my_fc(
    input: Any, size: int, param_attr: Any = None, bias_attr: Any = None, act: str | None = None
) -> Any:
    helper = LayerHelper("my_fc", **locals())
    dtype = helper.input_dtype()
    w = helper.create_parameter(helper.param_attr, [input.shape[1], size], dtype)
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="mul",
        inputs={"X": [helper.input()], "Y": [w]},
        outputs={"Out": [out]},
        attrs={"x_num_col_dims": 1},
    )
    squared = helper.append_op(type="square", inputs={"X": out})
    return helper.append_activation(helper.append_bias_op(squared))


def test_parameters_ops_bias_and_activation() -> None:
    x = fluid.layers.data("x", [4])
    weight, bias = fluid.ParamAttr(initializer=Constant(2.0)), fluid.ParamAttr(initializer=Constant(-65.0))
    out = my_fc(x, 3, weight, bias, "relu")
    helper = LayerHelper("counter")
    state = helper.create_or_get_global_variable("state", [1], "float32", Constant(7.0))
    assert helper.create_or_get_global_variable("state", [1], "float32", Constant(8.0)) is state
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    got, stored = exe.run(feed={"x": [[1.0, 1, 1, 1], [2, 1, 1, 1]]}, fetch_list=[out, state])
    np.testing.assert_allclose(got, [[0, 0, 0], [35, 35, 35]])
    np.testing.assert_array_equal(stored, [7.0])
    assert [p.name for p in helper.main_program.all_parameters()] == ["my_fc_0.w_0", "my_fc_0.b_0"]


def test_what_cannot_be_built_raises() -> None:
    x = fluid.layers.data("x", [4])
    helper = LayerHelper("mine", input=[x, x])
    for call, message in (
        (lambda: helper.append_op(type="multiclass_nms", inputs={"X": x}), "call a function of paddle"),
        (lambda: helper.append_op(type="relu", inputs={"X": x, "Y": x}), "give 1"),
        (
            lambda: helper.append_op(type="relu", inputs={"X": x}, attrs={"alpha": 1}),
            "'alpha' is not supported",
        ),
        (helper.input, "give one"),
        (helper.create_global_variable, "create_global_var"),
        (lambda: helper.create_variable_for_type_inference("float32").shape, "before append_op writes it"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
