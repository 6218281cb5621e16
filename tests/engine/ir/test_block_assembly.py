"""Recorded blocks become the blocks of a node: their inputs and their results."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy import static
from argosy.engine.ir.blocks import BlockCall
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
