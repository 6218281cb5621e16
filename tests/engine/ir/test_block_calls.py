"""Blocks become nodes: their inputs and results, and what cannot be differentiated."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.blocks import BlockCall
from argosy.fluid import layers
from argosy.static.nn import cond


def node_of(out: Any) -> Any:
    """The node with blocks that a result is an item of."""
    (node,) = out.node.all_input_nodes
    assert isinstance(node.target, BlockCall)
    return node


def test_the_inputs_are_what_the_blocks_read() -> None:
    x, y, unused = (static.data(name, [None, 3]) for name in ("x", "y", "unused"))
    condition = x.sum() > 0

    def branch() -> Any:
        torch.relu(unused)  # dead
        return x + x.size(0)

    node = node_of(cond(condition, branch, lambda: x * y))
    names = [source.name for source in node.all_input_nodes]
    assert names == ["gt", "x", "sym_size_int", "y"]
    assert [[n.name for n in block.nodes] for block in node.target.blocks] == [["add"], ["mul"]]


def test_results_that_alias_are_copied() -> None:
    x = static.data("x", [None, 3])
    first, second = cond(x.sum() > 0, lambda: (x, x), lambda: (x.t().t(), x * 2))
    targets = [[n.target._opname for n in block.nodes] for block in node_of(first).target.blocks]
    assert targets == [["clone", "clone"], ["t", "t", "mul", "clone"]]
    assert second.shape == (-1, 3)


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
