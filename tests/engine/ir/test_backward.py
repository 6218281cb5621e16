"""Backward: gradients are torch's, and stop at variables with stop_gradient."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor

W, V = torch.randn(4, 3), torch.randn(3, 2)


def net() -> tuple[Variable, Variable, Variable, Variable]:
    """h = tanh(x w), loss = sum(h v); returns x, w, h, loss with w and v as parameters."""
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", W.shape, "float32", trainable=True)
    v = program.state("v", V.shape, "float32", trainable=True)
    default_startup_program().define("w", W.clone)
    default_startup_program().define("v", V.clone)
    h = torch.tanh(x @ w)
    return x, w, h, (h @ v).sum()


def run(*fetches: Variable, batch: int = 5) -> list[np.ndarray]:
    exe = Executor()
    exe.run(default_startup_program())
    return exe.run(feed={"x": data(batch)}, fetch_list=list(fetches))


def data(batch: int = 5) -> torch.Tensor:
    return torch.linspace(-1, 1, batch * 4).reshape(batch, 4)


def test_gradients_equal_autograd_for_two_batch_sizes() -> None:
    _, _, _, loss = net()
    pairs = append_backward(loss)
    assert [(p.name, g.name) for p, g in pairs] == [("w", "w@GRAD"), ("v", "v@GRAD")]
    for batch in (5, 2):
        actual = run(*(g for _, g in pairs), batch=batch)
        w, v = W.clone().requires_grad_(), V.clone().requires_grad_()
        wanted = torch.autograd.grad((torch.tanh(data(batch) @ w) @ v).sum(), [w, v])
        for a, b in zip(actual, wanted, strict=True):
            np.testing.assert_array_equal(a, b.numpy())


def test_no_gradient_passes_a_variable_in_no_grad_set() -> None:
    _, _, h, loss = net()
    pairs = append_backward(loss, no_grad_set={h.name})
    assert [p.name for p, _ in pairs] == ["v"]


def test_stop_gradient_counts_even_if_set_after_the_variable_was_used() -> None:
    _, _, h, loss = net()
    h.stop_gradient = True
    assert [p.name for p, _ in append_backward(loss)] == ["v"]


def test_a_frozen_parameter_gets_no_gradient() -> None:
    _, w, _, loss = net()
    w.stop_gradient = True
    assert [p.name for p, _ in append_backward(loss)] == ["v"]


def test_only_the_listed_parameters_get_gradients() -> None:
    _, w, _, loss = net()
    assert [p.name for p, _ in append_backward(loss, parameter_list=[w])] == ["w"]
    assert [p.name for p, _ in append_backward(loss, parameter_list=["v"])] == ["v"]
    with pytest.raises(ConfigError, match="is not a parameter"):
        append_backward(loss, parameter_list=["x"])


def test_gradients_for_a_feed_and_for_an_intermediate() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    x.stop_gradient = False
    h = x * x
    loss = (h * 3).sum()
    gx, gh = gradients([loss], [x, h])
    assert gx is not None
    assert gh is not None
    actual = run(gx, gh)
    np.testing.assert_allclose(actual[0], 6 * data().numpy(), rtol=1e-6)
    np.testing.assert_allclose(actual[1], np.full((5, 4), 3.0))


def test_target_gradients_weigh_the_targets() -> None:
    x = default_main_program().data("x", [None, 4])
    x.stop_gradient = False
    y = x * 2
    (gx,) = gradients(y, x, target_gradients=x * 10)
    assert gx is not None
    np.testing.assert_allclose(run(gx)[0], 20 * data().numpy(), rtol=1e-6)
    with pytest.raises(ConfigError, match="1 targets but 2 target_gradients"):
        gradients(y, x, target_gradients=[x, x])


def test_what_does_not_depend_gives_none() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    z = program.state("z", [4], "float32", trainable=True)
    w = program.state("w", [4], "float32", trainable=True)
    assert gradients((x * w).sum(), [z]) == [None]


def test_a_custom_backward_of_the_user_is_kept() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return grad * 7

    x = default_main_program().data("x", [None, 4])
    x.stop_gradient = False
    y = default_main_program().call(Straight.apply, (x,), {})
    (gx,) = gradients(y.sum(), x)
    assert gx is not None
    np.testing.assert_array_equal(run(gx)[0], np.full((5, 4), 7.0))


def test_a_formula_that_looks_at_values_for_the_second_derivative_gives_the_first() -> None:
    program = default_main_program()
    x, source = program.data("x", [5, 4]), program.data("source", [5, 4])
    index = program.data("index", [5, 4], "int64")
    x.stop_gradient = source.stop_gradient = False
    grads = gradients([torch.scatter_reduce(x, 0, index, source, "prod").square().sum()], [x, source])
    feed = {"x": torch.randn(5, 4), "source": torch.randn(5, 4), "index": torch.randint(0, 5, (5, 4))}
    feed["source"][2] = 0
    leaves = [feed[name].clone().requires_grad_() for name in ("x", "source")]
    loss = torch.scatter_reduce(leaves[0], 0, feed["index"], leaves[1], "prod").square().sum()
    wanted = torch.autograd.grad(loss, leaves)
    given = {name: value.numpy() for name, value in feed.items()}
    for ours, theirs in zip(Executor().run(feed=given, fetch_list=grads), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert grads[0] is not None
    with pytest.raises(ProgramError, match="second derivative reads values; differentiate it only once"):
        gradients([grads[0].sum()], [x])


def test_a_loss_must_be_one_number() -> None:
    _, _, h, _ = net()
    with pytest.raises(ConfigError, match=r"has shape \[-1, 3\]; minimize needs one number"):
        append_backward(h)
    with pytest.raises(ConfigError, match="the loss is a float"):
        append_backward(0.5)  # type: ignore[arg-type]


def test_a_loss_without_parameters_is_an_error() -> None:
    x = default_main_program().data("x", [None, 4])
    with pytest.raises(ProgramError, match="no trainable parameter"):
        append_backward(x.sum())


def test_a_parameter_that_the_loss_ignores_is_said(caplog: pytest.LogCaptureFixture) -> None:
    _, _, _, loss = net()
    default_main_program().state("unused", [3], "float32", trainable=True)
    append_backward(loss)
    assert "does not depend on unused" in caplog.text


def test_a_program_for_testing_has_no_gradients() -> None:
    _, _, _, loss = net()
    test = default_main_program().clone(for_test=True)
    with pytest.raises(ProgramError, match="cannot be differentiated"):
        append_backward(test.var(loss.name))
