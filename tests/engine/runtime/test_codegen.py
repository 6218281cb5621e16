"""codegen: one line a node, dead values deleted, errors traced to their node."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.compile import compile_program


def test_the_function_has_one_line_a_node_and_deletes_the_dead() -> None:
    x = default_main_program().data("x", [None, 4])
    y = torch.cos(torch.sin(x))
    step = compile_program(default_main_program(), [y]).step
    lines = step.code.splitlines()
    assert len(lines) == 2 + len(step.nodes)
    assert lines[1].endswith("; del v0")
    assert lines[2].endswith("; del v1")
    assert lines[3] == "    return (v2, )"


def test_with_a_clock_there_is_still_one_line_a_node_and_the_same_is_deleted() -> None:
    x = default_main_program().data("x", [None, 4])
    compiled = compile_program(default_main_program(), [torch.cos(torch.sin(x))])
    plain, timed = compiled.step.code.splitlines(), compiled.timed.step.code.splitlines()
    assert timed[1] == f"    t = now(); {plain[1].strip().partition(';')[0]}; record((0, t, now())); del v0"
    assert [line.partition("del")[2] for line in timed] == [line.partition("del")[2] for line in plain]
    assert "now" not in compiled.step.code
    given = torch.rand(2, 4)
    assert torch.equal(compiled.timed.step.function(given)[0], compiled.step.function(given)[0])
    spans = compiled.timed.spans
    assert [place for place, _, _ in spans] == [0, 1]
    assert spans[0][1] <= spans[0][2] <= spans[1][1] <= spans[1][2]
    assert [label.op for label in compiled.timed.labels] == ["sin", "cos"]


def test_an_error_knows_its_node() -> None:
    x = default_main_program().data("x", [None], "int64")
    table = default_main_program().data("table", [3, 2])
    y = torch.nn.functional.embedding(x, table)
    step = compile_program(default_main_program(), [y]).step
    with pytest.raises(IndexError) as caught:
        step.function(torch.tensor([7]), torch.zeros(3, 2))
    node = step.node_of(caught.value)
    assert node is not None
    assert str(node.target) == "aten.embedding.default"
    assert step.node_of(ValueError("from elsewhere")) is None


def test_infinities_and_dtypes_survive_as_arguments() -> None:
    x = default_main_program().data("x", [None, 4])
    y = torch.where(x > 0, torch.full_like(x, float("-inf")), x).to(torch.float64)
    actual = compile_program(default_main_program(), [y]).step.function(torch.tensor([[1.0, -1, 0, 2]]))[0]
    assert actual.dtype == torch.float64
    assert actual[0, 0] == float("-inf")
