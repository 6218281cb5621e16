"""checked: a step raises where the data breaks a condition; GaussianNLLLoss checks its variances with it."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.checked import checked
from argosy.engine.runtime.executor import Executor

assert static  # modules take Variables
NAMES = ("x", "target", "var")


@pytest.fixture(autouse=True)
def shared() -> None:
    """One thread: nothing here computes."""


def feeds(*var: int | None) -> list[Variable]:
    program = default_main_program()
    variables = [
        program.data(name, shape) for name, shape in zip(NAMES, ([None, 3], [None, 3], var), strict=True)
    ]
    for variable in variables:
        variable.stop_gradient = False
    return variables


def run(fetched: Sequence[Any], *given: Tensor) -> list[Tensor]:
    fed = dict(zip(NAMES, given, strict=True))
    return Executor().run(feed=fed, fetch_list=list(fetched), return_numpy=False)


# --- nn.GaussianNLLLoss -------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [3, 1, None])
def test_values_and_gradients_equal_eager(width: int | None, full: bool, reduction: str) -> None:
    loss = nn.GaussianNLLLoss(full=full, reduction=reduction, eps=0.2)
    variables = feeds(None, *([] if width is None else [width]))
    out = loss(*variables)
    fetched = [out, *gradients(out.sum(), variables)]
    for batch in (4, 1):
        var = torch.rand(batch, *([] if width is None else [width]))
        var[0] = 0.1  # below eps
        given = torch.randn(batch, 3), torch.randn(batch, 3), var
        leaves = [t.clone().requires_grad_() for t in given]
        wanted = loss(*leaves)
        torch.testing.assert_close(
            run(fetched, *given), [wanted.detach(), *torch.autograd.grad(wanted.sum(), leaves)]
        )


def test_a_variance_that_is_a_number_equals_eager() -> None:
    x, target, _ = feeds(1)
    out = nn.functional.gaussian_nll_loss(x, target, 0.5)
    given = torch.randn(4, 3), torch.randn(4, 3)
    actual = run([out], *given, torch.zeros(1))
    torch.testing.assert_close(actual, [nn.functional.gaussian_nll_loss(*given, 0.5)])


def test_a_negative_variance_raises_when_the_step_runs_and_names_the_line() -> None:
    out = nn.GaussianNLLLoss()(*feeds(None, 3))
    given = torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 3)
    run([out], *given)
    given[2][2, 1] = -0.1
    with pytest.raises(ProgramError, match="var has negative entries") as raised:
        run([out], *given)
    assert "test_checked.py" in str(raised.value)


def test_a_negative_variance_raises_where_only_gradients_are_fetched() -> None:
    variables = feeds(None, 3)
    grads = gradients(nn.GaussianNLLLoss()(*variables), variables)
    given = torch.randn(4, 3), torch.randn(4, 3), -torch.rand(4, 3)
    with pytest.raises(ProgramError, match="var has negative entries"):
        run(grads, *given)


def test_a_variance_that_is_nan_gives_what_eager_gives() -> None:
    loss = nn.GaussianNLLLoss(reduction="none")
    out = loss(*feeds(None, 3))
    given = torch.randn(2, 3), torch.randn(2, 3), torch.rand(2, 3)
    given[2][1, 0] = torch.nan
    torch.testing.assert_close(run([out], *given), [loss(*given)], equal_nan=True)


def test_variances_of_another_shape_are_rejected() -> None:
    with pytest.raises(
        ProgramError, match=r"GaussianNLLLoss called at test_checked.py:\d+.*var is of incorrect size"
    ):
        nn.GaussianNLLLoss()(*feeds(None, 2))


# --- the op -------------------------------------------------------------------------------------------


def test_a_condition_that_holds_gives_the_tensor() -> None:
    x = torch.randn(3)
    actual = checked(x, torch.tensor(True), "")
    assert torch.equal(actual, x)
    assert actual.data_ptr() != x.data_ptr()


def test_a_condition_that_does_not_hold_raises_the_message() -> None:
    with pytest.raises(ValueError, match="too large"):
        checked(torch.zeros(3), torch.tensor(False), "too large")


def test_the_gradient_passes() -> None:
    x = torch.randn(3, requires_grad=True)
    checked(x, torch.tensor(True), "").pow(2).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_fake_shapes_equal_real_shapes(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    real = checked(x, torch.tensor(True), "")
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = checked(x, torch.tensor(True), "")
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_a_transposed_tensor_has_the_strides_that_the_fake_one_has() -> None:
    x = torch.randn(3, 4).T
    real = checked(x, torch.tensor(True), "")
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert checked(x, torch.tensor(True), "").stride() == real.stride()
