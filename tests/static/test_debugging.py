"""Print, Assert and py_func: what the host sees of a step."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy import static
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.serialize import to_dict
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers


def started() -> static.Executor:
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe


def test_print_shows_values_and_gradients_so_often_as_asked(capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [None, 2])
    w = static.create_parameter([2], "float32", name="w")
    y = static.Print(x * w, first_n=2, message="product", summarize=3)
    static.Print(y, print_phase="forward", print_tensor_name=False, print_tensor_shape=False, message="quiet")
    ((_, gradient),) = static.append_backward((y * 3).sum())
    exe = started()
    global_scope().get("w").fill_(2.0)
    for _ in range(3):
        (grad,) = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[gradient])
        assert grad.tolist() == [6, 6]
    printed = capfd.readouterr().err
    assert printed.count("product\nVariable: elementwise_mul_0.tmp_0\n  - shape: [2, 2]") == 2
    assert "  - dtype: float32\n  - data: [2 2 2 …]" in printed
    assert printed.count("Variable: elementwise_mul_0.tmp_0@GRAD") == 2
    assert printed.count("quiet\n  - layout") == 3
    with pytest.raises(ConfigError, match="print_phase is 'never'"):
        static.Print(y, print_phase="never")


def test_a_print_in_a_branch_prints_if_it_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [None, 2])
    w = static.create_parameter([2], "float32", name="w")
    out = static.nn.cond(x.sum() > 0, lambda: static.Print(x * w, message="taken"), lambda: x)
    static.append_backward(out.sum())
    exe = started()
    for sign in (1, -1):
        exe.run(feed={"x": np.full((1, 2), sign, "float32")}, fetch_list=["w@GRAD"])
    printed = capfd.readouterr().err
    assert printed.count("taken") == 2, "the value in forward, and the gradient in backward"
    assert printed.count("@GRAD") == 1


def test_an_assertion_raises_with_the_data() -> None:
    x = static.data("x", [None, 2])
    layers.Assert(x.max() < 3, [x], summarize=1)
    exe = started()
    exe.run(feed={"x": np.ones((1, 2), "float32")})
    with pytest.raises(ProgramError, match=r"is false: \[1, 2\]: \[7.0\]"):
        exe.run(feed={"x": np.full((1, 2), 7, "float32")})
    with pytest.raises(ConfigError, match="use a bool Variable"):
        layers.Assert(x)


def new(name: str, shape: list[int], dtype: str = "float32") -> Any:
    block = static.default_main_program().current_block()
    return block.create_var(name=name, dtype=dtype, shape=shape)


def test_py_func_runs_python_forward_and_backward() -> None:
    x = static.data("x", [None, 3])
    w = static.create_parameter([3], "float32", name="w")
    y, out, count = x * w, new("out", [-1, 3]), new("count", [1], "int64")

    def forward(value: Any) -> Any:
        return np.tanh(value), np.array([(value > 0).sum()])

    def backward(out: Any, count: Any, gradient: Any, _: Any) -> Any:
        return gradient * (1 - out * out)

    assert static.py_func(forward, y, [out, count], backward, skip_vars_in_backward_input=y) == [out, count]
    ((_, gradient),) = static.append_backward((out * out).sum())
    exe = started()
    fed = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    value, positive, grad = exe.run(feed={"x": fed}, fetch_list=["out", count, gradient])
    weight = global_scope().get("w").clone().requires_grad_()
    expected = torch.tanh(torch.from_numpy(fed) * weight)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-5)
    np.testing.assert_allclose(grad, torch.autograd.grad((expected**2).sum(), weight)[0], rtol=1e-4)
    assert positive.item() == (expected > 0).sum()
    with pytest.raises(ProgramError, match="a function of the script that built the program"):
        to_dict(static.default_main_program())


def test_py_func_checks_what_the_function_returns() -> None:
    x = static.data("x", [None, 3])
    out = new("out", [2, 3])
    static.py_func(lambda value: value, x, out)
    with pytest.raises(
        ProgramError, match=r"returned torch.float32\[4, 3\] as value 0, and `out` is torch.float32\[2, 3\]"
    ):
        started().run(feed={"x": np.ones((4, 3), "float32")}, fetch_list=[out])
    with pytest.raises(ConfigError, match="dimension 1 of out 'wide' is -1"):
        static.py_func(lambda value: value, x, new("wide", [2, -1]))


def test_py_func_does_not_run_again_in_backward() -> None:
    x = static.data("x", [None, 3])
    w = static.create_parameter([3], "float32", name="w")
    out = new("out", [-1, 3])

    def branch() -> Any:
        static.py_func(lambda value: value, x * w, out, lambda x, y, gradient: gradient)
        return out * out

    loss = static.nn.cond(x.sum() > 0, branch, lambda: x).sum()
    with pytest.raises(ProgramError, match="acts outside of the program, and backward would run it again"):
        static.append_backward(loss)
