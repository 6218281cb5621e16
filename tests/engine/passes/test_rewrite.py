"""rewrite: passes on a program itself; its variables are bound to the nodes that replace theirs."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.passes.base import Pass, Report, rewrite
from argosy.engine.runtime.executor import Executor


@dataclass(frozen=True)
class Double(Pass):
    """Replace a node by `2 * node` for every reader of its variable."""

    name: ClassVar[str] = "double"
    node: fx.Node

    def run(self, graph: fx.Graph) -> Report:
        with graph.inserting_after(self.node):
            doubled = graph.call_function(torch.ops.aten.mul.Tensor, (self.node, 2))
        doubled.meta = {"role": "forward", "source": None, "replaces": self.node}
        doubled.meta["val"] = infer(doubled)
        return Report(1, "")


def net() -> Program:
    program = default_main_program()
    program.call(torch.neg, (program.data("x", [2]),), {})
    return program


def test_a_variable_is_bound_to_the_node_that_replaces_it() -> None:
    program = net()
    (report,) = rewrite(program, [Double(program.var("neg_0.tmp_0").node)])
    assert report.changed == 1
    assert Executor().run(program, {"x": torch.ones(2)}, ["neg_0.tmp_0"])[0].tolist() == [-2.0, -2.0]
    assert "neg_0.tmp_0 = mul(neg, 2)" in str(program)
    assert not any("replaces" in node.meta for node in program.graph.nodes)


def test_a_program_that_was_compiled_before_is_compiled_again() -> None:
    program, exe = net(), Executor()
    assert exe.run(program, {"x": torch.ones(2)}, ["neg_0.tmp_0"])[0].tolist() == [-1.0, -1.0]
    rewrite(program, [Double(program.var("neg_0.tmp_0").node)])
    assert exe.run(program, {"x": torch.ones(2)}, ["neg_0.tmp_0"])[0].tolist() == [-2.0, -2.0]


def test_later_passes_see_what_earlier_ones_did_not_rename() -> None:
    program = net()
    old = program.var("neg_0.tmp_0").node
    rewrite(program, [Double(old)])
    rewrite(program, [Double(program.var("neg_0.tmp_0").node)])
    assert Executor().run(program, {"x": torch.ones(2)}, ["neg_0.tmp_0"])[0].tolist() == [-4.0, -4.0]


def test_a_pass_that_fails_is_named() -> None:
    program = net()
    other = Program()
    node = other.data("z", [1]).node
    other.graph.erase_node(node)
    with pytest.raises(ProgramError, match="pass double"):
        rewrite(program, [Double(node)])
