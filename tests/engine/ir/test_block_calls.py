"""Nodes with blocks are differentiated; what their blocks read must be an input, and not change afterwards."""

# SPDX-License-Identifier: Apache-2.0
import pytest

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError
from argosy.fluid import layers
from argosy.static.nn import cond


def test_a_value_that_is_modified_in_place_afterwards_raises_in_backward() -> None:
    x = static.data("x", [None, 3])
    w = static.create_parameter([3], "float32", name="w")
    scale = paddle.full([3], 2.0, "float32")
    out = cond(x.sum() > 0, lambda: x * w * scale, lambda: x)
    layers.increment(scale)
    with pytest.raises(ProgramError, match="that cond reads is modified in place afterwards"):
        static.append_backward(out.sum())


def test_a_tensor_that_is_read_other_than_by_its_variable_raises() -> None:
    x = static.data("x", [None, 3])
    w = static.create_parameter([3], "float32", name="w")
    program = static.default_main_program()
    with pytest.raises(ProgramError, match="reads a tensor of shape .* of the enclosing program directly"):
        cond(x.sum() > 0, lambda: program.call(lambda value: value * w.value, (x,), {}), lambda: x)
