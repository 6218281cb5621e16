"""Program: what building does, what it says, what it refuses."""

# SPDX-License-Identifier: Apache-2.0
import shutil

import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError, ProgramError, UnknownNameError
from argosy.engine.ir import names
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.verify import verify
from argosy.engine.runtime.executor import Executor


def small() -> tuple[Program, Variable]:
    """y = relu(x @ w), loss = mean(y): one feed, one parameter."""
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", [4, 3], "float32", trainable=True)
    return program, torch.relu(x @ w).mean()


def test_torch_functions_on_variables_become_nodes() -> None:
    program, loss = small()
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.mm.default", "aten.relu.default", "aten.mean.default"]
    assert loss.shape == ()


def test_every_node_has_a_type_a_role_and_the_users_line() -> None:
    program, loss = small()
    append_backward(loss)
    verify(program.graph)
    for node in program.graph.nodes:
        assert node.meta["role"] in ("forward", "backward")
        assert node.meta["source"].file == __file__


def test_backward_nodes_carry_the_line_of_their_forward_operator() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", [4, 4], "float32", trainable=True)
    h = x @ w
    y = torch.tanh(h)
    tanh_line = program.graph._root.prev.meta["source"].line
    append_backward(y.sum())
    (node,) = [n for n in program.graph.nodes if "tanh_backward" in str(n.target)]
    assert node.meta["source"].line == tanh_line


def test_unknown_sizes_are_minus_one_for_the_user_and_symbols_inside() -> None:
    x = default_main_program().data("x", [None, 3, -1, 8])
    assert x.shape == (-1, 3, -1, 8)
    assert isinstance(x.size(0), torch.SymInt)
    assert x.reshape(x.size(0) * 3, -1).shape == (-1, -1)


def test_the_printed_program_has_one_line_a_node() -> None:
    program, loss = small()
    append_backward(loss)
    lines = str(program).splitlines()
    assert len(lines) == 1 + len(program.graph.nodes)
    assert lines[0].startswith("main: 1 feeds, 1 parameters, ")
    assert lines[1].split() == ["feed", "x", "float32[N,", "4]"]
    assert lines[2].split() == ["param", "w", "float32[4,", "3]"]
    assert "forward     matmul_0.tmp_0 = mm(x, w)" in str(program)
    assert "backward    w@GRAD = mm(" in str(program)
    assert f"# {__file__.rsplit('/', 1)[1]}:" in program.to_string(source=True)
    assert "#" not in str(program)


def test_dot_names_every_node_and_svg_draws_it() -> None:
    program, _ = small()
    text = program.to_dot()
    assert text.count("fillcolor") == len(program.graph.nodes)
    assert '"x" -> "mm"' in text
    if shutil.which("dot") is None:
        with pytest.raises(ConfigError, match="graphviz"):
            program.to_svg()
    else:
        assert "<svg" in program.to_svg()


def test_names_are_paddles() -> None:
    x = default_main_program().data("x", [None, 4])
    assert torch.relu(x).name == "relu_0.tmp_0"
    assert torch.relu(x).name == "relu_1.tmp_0"
    assert (x + 1).name == "elementwise_add_0.tmp_0"


def test_names_restart_under_a_guard() -> None:
    assert names.generate("fc") == "fc_0"
    with names.guard():
        assert names.generate("fc") == "fc_0"
    with names.guard("teacher_"):
        assert names.generate("fc") == "teacher_fc_0"
    assert names.generate("fc") == "fc_1"


def test_program_guard_changes_the_default_programs_and_puts_them_back() -> None:
    before = default_main_program(), default_startup_program()
    main, startup = Program(), Program()
    with program_guard(main, startup):
        assert (default_main_program(), default_startup_program()) == (main, startup)
    assert (default_main_program(), default_startup_program()) == before
    with pytest.raises(ConfigError, match="give a static.Program"), program_guard("main"):  # type: ignore[arg-type]
        pass


def test_lists_of_variables() -> None:
    program, _ = small()
    assert [p.name for p in program.all_parameters()] == ["w"]
    assert {"x", "w", "relu_0.tmp_0"} <= {v.name for v in program.list_vars()}
    assert isinstance(program.var("w"), Parameter)
    assert program.var("w").block.program is program
    with pytest.raises(ConfigError, match=r"has no variable 'relu_0.tmp_1' \(did you mean 'relu_0.tmp_0'"):
        program.var("relu_0.tmp_1")


def test_operators_are_listed_with_their_inputs_and_roles() -> None:
    program, loss = small()
    append_backward(loss)
    block = program.global_block()
    forward = [op for op in block.ops if op.role == "forward" and op.type != "sym_size"]
    assert [op.type for op in forward] == ["mm", "relu", "mean"]
    assert str(forward[0]) == "matmul_0.tmp_0 = mm(x, w)"
    assert {op.role for op in block.ops} == {"forward", "backward"}
    assert block.has_var("w")
    assert not block.has_var("q")


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (bool, "a truth value"),
        (float, "a number"),
        (int, "a number"),
        (lambda v: [0][v], "an index"),
        (iter, "length"),
    ],
)
def test_a_variable_is_no_value(use: object, what: str) -> None:
    _, loss = small()
    with pytest.raises(ProgramError, match=what) as caught:
        use(loss)  # type: ignore[operator]
    assert loss.name in str(caught.value)


def test_variables_of_two_programs_do_not_mix() -> None:
    x = default_main_program().data("x", [None, 4])
    with program_guard(Program("other")):
        y = default_main_program().data("y", [None, 4])
    with pytest.raises(ProgramError, match="'y' belongs to 'other' and was used in 'main'"):
        x + y


def test_an_operator_that_does_not_fit_names_variables_shapes_and_line() -> None:
    x = default_main_program().data("x", [None, 4])
    w = default_main_program().state("w", [5, 3], "float32", trainable=True)
    with pytest.raises(
        ProgramError, match=r"matmul\(x: float32\[-1, 4\], w: float32\[5, 3\]\) at test_program.py:\d+"
    ):
        x @ w


def test_an_unknown_attribute_is_named() -> None:
    x = default_main_program().data("x", [None, 4])
    with pytest.raises(UnknownNameError, match="no attribute 'lenght'"):
        x.lenght  # noqa: B018


def test_a_misspelt_attribute_is_refused_when_it_is_set() -> None:
    x = default_main_program().data("x", [None, 4])
    with pytest.raises(
        UnknownNameError, match="no attribute 'stop_gradeint' to set .did you mean 'stop_gradient'"
    ):
        x.stop_gradeint = False
    x.stop_gradient = False


def test_a_decision_on_data_is_refused_with_the_line() -> None:
    x = default_main_program().data("x", [None, 4])
    with pytest.raises(ProgramError, match=r"test_program.py:\d+ in .* needs the value of"):
        default_main_program().call(lambda t: t if t.sum().item() > 0 else -t, (x,), {})


def test_a_number_taken_out_of_a_tensor_is_known_when_the_program_runs() -> None:
    x = default_main_program().data("x", [None, 4])
    y = default_main_program().call(lambda t: t * t.sum().item(), (x,), {})
    (actual,) = Executor().run(feed={"x": torch.full((2, 4), 0.5)}, fetch_list=[y])
    assert actual.tolist() == [[2.0] * 4] * 2


def test_a_feed_is_declared_once() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    assert program.data("x", [None, 4]) is x
    with pytest.raises(ProgramError, match="variable 'x' exists already"):
        program.data("x", [None, 5])
    with pytest.raises(ConfigError, match="'z': 0 is no size"):
        program.data("z", [None, 0])


def test_parameters_of_one_name_are_shared_if_they_agree() -> None:
    program = default_main_program()
    w = program.state("w", [4, 3], "float32", trainable=True)
    assert program.state("w", [4, 3], "float32", trainable=True) is w
    with pytest.raises(ProgramError, match=r"'w' exists already as float32\[4, 3\]"):
        program.state("w", [4, 5], "float32", trainable=True)


def test_numpy_constants_and_real_tensors_become_constants_of_the_program() -> None:
    program = default_main_program()
    x = program.data("x", [None, 2])
    y = x * torch.tensor([1.0, 2.0])
    assert y.shape == (-1, 2)
    assert list(program.recorder.constants) == ["constant_0"]


def test_in_place_functions_give_the_same_variable() -> None:
    x = default_main_program().data("x", [None, 2])
    y = x * 2
    assert y.add_(1) is y


def test_a_program_with_a_mistake_is_refused_by_the_verifier() -> None:
    program, _ = small()
    node = next(n for n in program.graph.nodes if n.name == "relu")
    node.prepend(node.next)  # its reader now comes before it
    with pytest.raises(ProgramError, match="reads 'relu' before it is written"):
        verify(program.graph)


def test_the_verifier_wants_roles_and_operators() -> None:
    program, _ = small()
    node = next(n for n in program.graph.nodes if n.name == "relu")
    node.meta["role"] = "sideways"
    with pytest.raises(ProgramError, match="role 'sideways'"):
        verify(program.graph)
    node.meta["role"] = "forward"
    node.target = F.relu
    with pytest.raises(ProgramError, match="which is not an operator"):
        verify(program.graph)
