"""Kernels that eager mode never calls with such sizes: batch norm of no rows, variances of one row."""

# SPDX-License-Identifier: Apache-2.0
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.safe_kernels import SAFE
from tests.ranks import ForkServer

aten = torch.ops.aten

NO_ROWS = """
import torch
from torch import nn
from argosy import static
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import Program, default_startup_program, program_guard
from argosy.engine.ir.torch_module import values_for
from argosy.engine.runtime.executor import Executor

for module, shape in ((nn.BatchNorm1d(3), [3]), (nn.BatchNorm1d(3), [3, 2]), (nn.BatchNorm2d(3), [3, 4, 4])):
    module.eval()
    with program_guard(Program(), Program()):
        x = static.default_main_program().data("x", [None, *shape])
        x.stop_gradient = False
        out = module(x)
        values = values_for(static.default_main_program(), module)
        grads = gradients(out.pow(2).sum(), [x, values["weight"], values["bias"]])
        exe = Executor()
        exe.run(default_startup_program())
        for batch in (2, 0):
            given = torch.randn(batch, *shape)
            actual = exe.run(feed={"x": given}, fetch_list=[out, *grads], return_numpy=False)
            given.requires_grad_()
            wanted = module(given)
            leaves = [given, module.weight, module.bias]
            wanted_grads = torch.autograd.grad(wanted.pow(2).sum(), leaves)
            torch.testing.assert_close(actual, [wanted.detach(), *wanted_grads])
print("three modules, no rows")
"""


def test_batch_norm_of_no_rows_equals_eager(ranks: ForkServer) -> None:
    """In a process of its own, which ATen's kernel would end by SIGFPE."""
    done = ranks.python("-c", NO_ROWS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "three modules, no rows\n"


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, False], [False, True, True]])
@pytest.mark.parametrize("has_weight", [True, False])
def test_the_gradients_of_no_rows_are_zero(has_weight: bool, mask: list[bool]) -> None:
    kernel = SAFE[aten.native_batch_norm_backward.default]
    x, weight = torch.randn(0, 3, 4), torch.randn(3) if has_weight else None
    actual = kernel(x, x, weight, torch.zeros(3), torch.ones(3), None, None, False, 1e-5, mask)
    assert [g is not None for g in actual] == mask
    shapes = [g.shape for g in actual if g is not None]
    assert shapes == [s for s, wanted in zip(((0, 3, 4), (3,), (3,)), mask, strict=True) if wanted]
    assert not any(g.any() for g in actual if g is not None)


def test_the_gradients_of_some_rows_are_those_of_torch() -> None:
    x, dy, weight = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3)
    rest = (torch.zeros(3), torch.ones(3), None, None, False, 1e-5, [True, True, True])
    actual = SAFE[aten.native_batch_norm_backward.default](dy, x, weight, *rest)
    torch.testing.assert_close(
        list(actual), list(aten.native_batch_norm_backward.default(dy, x, weight, *rest))
    )


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(0),
    "var of all": lambda x: x.var(),
    "std of all": lambda x: x.std(),
    "var_mean": lambda x: torch.var_mean(x, 0)[0],
    "var with correction": lambda x: torch.var(x, 0, correction=2),
    "population": lambda x: x.std(0, unbiased=False),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_spreads_of_few_rows_and_their_gradients_equal_eager(
    function: Callable[[Any], Any], rows: int
) -> None:
    x = default_main_program().data("x", [None, 1])
    x.stop_gradient = False
    out = function(x)
    (grad,) = gradients(out.sum(), x)
    given = torch.randn(rows, 1)
    actual = Executor().run(feed={"x": given}, fetch_list=[out, grad], return_numpy=False)
    leaf = given.clone().requires_grad_()
    wanted = function(leaf)
    torch.testing.assert_close(
        actual, [wanted.detach(), *torch.autograd.grad(wanted.sum(), leaf)], equal_nan=True
    )


def test_the_spread_of_one_row_is_nan() -> None:
    x = default_main_program().data("x", [None, 1])
    x.stop_gradient = False
    (grad,) = gradients(x.std(0).sum(), x)
    (actual,) = Executor().run(feed={"x": torch.ones(1, 1)}, fetch_list=[grad], return_numpy=False)
    assert actual.isnan().all()


@pytest.mark.parametrize("a", [1.0, -1.0, 0.0, -0.0, 3, 0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("b", [0.0, -0.0, 0, 2.0, -4])
def test_sizes_are_divided_as_in_c(a: float, b: float) -> None:
    actual = SAFE[operator.truediv](a, b)
    wanted = torch.tensor(float(a), dtype=torch.float64) / torch.tensor(float(b), dtype=torch.float64)
    assert actual == wanted or (math.isnan(actual) and wanted.isnan())


def test_a_mean_over_no_rows_is_what_eager_gives() -> None:
    def per_row(x: Tensor) -> Tensor:
        return x.sum() / x.shape[0]

    x = default_main_program().data("x", [None, 3])
    out = default_main_program().call(per_row, (x,), {})
    for rows in (2, 0):
        given = torch.ones(rows, 3)
        (actual,) = Executor().run(feed={"x": given}, fetch_list=[out], return_numpy=False)
        torch.testing.assert_close(actual, per_row(given), equal_nan=True)


def test_a_group_norm_behind_frozen_images_trains_in_channels_last(ranks: ForkServer) -> None:
    """ATen's kernel ended the process: it runs in a process of its own."""
    code = """
import torch
from argosy.engine.runtime.codegen import kernel

backward = kernel(torch.ops.aten.native_group_norm_backward.default)
x = torch.randn(7, 6, 4, 5).contiguous(memory_format=torch.channels_last)
weight = torch.randn(6, requires_grad=True)
y, mean, rstd = torch.native_group_norm(x, weight, None, 7, 6, 20, 2, 1e-5)
dy = torch.randn_like(y)
(wanted,) = torch.autograd.grad(torch.nn.functional.group_norm(x.contiguous(), 2, weight), weight, dy)
dx, dweight, dbias = backward(dy, x, mean.detach(), rstd.detach(), weight.detach(), 7, 6, 20, 2, [False, True, False])
assert dx is None
assert dbias is None
torch.testing.assert_close(dweight, wanted)
"""
    done = ranks.python("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_last", [(a, b) for a in (False, True) for b in (False, True)])
def test_the_gradient_of_a_group_norm_does_not_depend_on_the_layout(is_last: tuple[bool, bool]) -> None:
    x, dy, weight = torch.randn(7, 4, 3, 5), torch.randn(7, 4, 3, 5), torch.randn(4)
    _, mean, rstd = torch.native_group_norm(x, weight, None, 7, 4, 15, 2, 1e-5)
    rest = (mean, rstd, weight, 7, 4, 15, 2, [True, True, True])
    wanted = torch.ops.aten.native_group_norm_backward(dy, x, *rest)
    orders = [torch.channels_last if last else torch.contiguous_format for last in is_last]
    given = [t.contiguous(memory_format=order) for t, order in zip((dy, x), orders, strict=True)]
    actual = SAFE[torch.ops.aten.native_group_norm_backward.default](*given, *rest)
    for have, want in zip(actual, wanted, strict=True):
        torch.testing.assert_close(have, want)


@pytest.mark.parametrize("is_last", [(a, b) for a in (False, True) for b in (False, True)])
def test_the_gradient_of_a_weight_norm_does_not_depend_on_the_layout(is_last: tuple[bool, bool]) -> None:
    dw, v, g = torch.randn(4, 4, 3, 3), torch.randn(4, 4, 3, 3), torch.randn(4, 1, 1, 1)
    _, norms = torch._weight_norm_interface(v, g, 0)
    wanted = torch.ops.aten._weight_norm_interface_backward(dw, v, g, norms, 0)
    orders = [torch.channels_last if last else torch.contiguous_format for last in is_last]
    given = [t.contiguous(memory_format=order) for t, order in zip((dw, v), orders, strict=True)]
    actual = SAFE[torch.ops.aten._weight_norm_interface_backward.default](*given, g, norms, 0)
    for have, want in zip(actual, wanted, strict=True):
        torch.testing.assert_close(have, want)
