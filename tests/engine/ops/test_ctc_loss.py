"""ctc_loss: lengths that are fed, the numbers and gradients of torch, lengths that do not fit."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
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
from argosy.engine.ops.ctc_loss import ctc_loss, ctc_loss_backward
from argosy.engine.runtime.executor import Executor

assert static  # modules take Variables
CLASSES = 5
REDUCTIONS = ["none", "mean", "sum"]
NAMES = ("log_probs", "targets", "input_lengths", "target_lengths")


@pytest.fixture(autouse=True)
def shared() -> None:
    """One thread: the kernel is torch's."""


def padded(steps: int, batch: int) -> list[Tensor]:
    """Scores, targets as rows, and lengths, some shorter than the tensors."""
    return [
        torch.randn(steps, batch, CLASSES).log_softmax(-1),
        torch.randint(1, CLASSES, (batch, 3)),
        torch.randint(steps - 2, steps + 1, (batch,)),
        torch.randint(1, 4, (batch,)),
    ]


def concatenated(steps: int, batch: int) -> list[Tensor]:
    """The same with all targets in one vector."""
    scores, rows, input_lengths, target_lengths = padded(steps, batch)
    parts = [row[:length] for row, length in zip(rows, target_lengths, strict=True)]
    return [scores, torch.cat(parts), input_lengths, target_lengths]


def feeds(*shapes: Sequence[int | None]) -> list[Variable]:
    program = default_main_program()
    variables = [
        program.data(name, shape, "int64" if number else "float32")
        for number, (name, shape) in enumerate(zip(NAMES, shapes, strict=False))
    ]
    variables[0].stop_gradient = False
    return variables


def assert_equals_eager(
    loss: nn.Module, fetched: Sequence[Any], given: Sequence[Tensor], constants: Sequence[Any] = ()
) -> None:
    fed = dict(zip(NAMES, given, strict=False))
    actual = Executor().run(feed=fed, fetch_list=list(fetched), return_numpy=False)
    leaf = given[0].clone().requires_grad_()
    wanted = loss(leaf, *given[1:], *constants)
    torch.testing.assert_close(actual, [wanted.detach(), *torch.autograd.grad(wanted.sum(), leaf)])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("targets", [padded, concatenated])
def test_fed_lengths_equal_eager(targets: Any, reduction: str) -> None:
    loss = nn.CTCLoss(reduction=reduction)
    shape = [None, 3] if targets is padded else [None]
    variables = feeds([None, None, CLASSES], shape, [None], [None])
    out = loss(*variables)
    fetched = [out, *gradients(out.sum(), variables[0])]
    for steps, batch in ((8, 3), (9, 5), (7, 1)):
        assert_equals_eager(loss, fetched, targets(steps, batch))


def test_lengths_that_are_numbers_equal_eager() -> None:
    loss = nn.CTCLoss(blank=4)
    lengths = (8, 7, 6), (3, 1, 2)
    variables = feeds([None, 3, CLASSES], [3, 3])
    out = loss(*variables, *lengths)
    given = [torch.randn(8, 3, CLASSES).log_softmax(-1), torch.randint(0, 4, (3, 3))]
    assert_equals_eager(loss, [out, *gradients(out.sum(), variables[0])], given, lengths)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_sequence_without_a_batch_equals_eager(reduction: str) -> None:
    loss = nn.CTCLoss(reduction=reduction)
    variables = feeds([None, CLASSES], [None], [], [])
    out = loss(*variables)
    assert out.shape == ()
    fetched = [out, *gradients(out, variables[0])]
    given = [
        torch.randn(8, CLASSES).log_softmax(-1),
        torch.tensor([1, 2, 2]),
        torch.tensor(7),
        torch.tensor(3),
    ]
    assert_equals_eager(loss, fetched, given)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_target_longer_than_its_input_equals_eager(zero_infinity: bool) -> None:
    loss = nn.CTCLoss(reduction="none", zero_infinity=zero_infinity)
    variables = feeds([None, None, CLASSES], [None, 3], [None], [None])
    out = loss(*variables)
    given = [*padded(8, 2)[:2], torch.tensor([2, 8]), torch.tensor([3, 3])]
    (actual,) = Executor().run(
        feed=dict(zip(NAMES, given, strict=True)), fetch_list=[out], return_numpy=False
    )
    torch.testing.assert_close(actual, loss(*given))
    assert bool(torch.isinf(actual[0])) != zero_infinity


def test_infinite_losses_have_the_gradients_of_eager() -> None:
    loss = nn.CTCLoss(zero_infinity=True)
    variables = feeds([None, None, CLASSES], [None, 3], [None], [None])
    out = loss(*variables)
    given = [*padded(8, 2)[:2], torch.tensor([2, 8]), torch.tensor([3, 3])]
    assert_equals_eager(loss, [out, *gradients(out, variables[0])], given)


def test_the_functions_of_torch_are_recorded_too() -> None:
    given = padded(8, 3)
    scores, *rest = feeds([None, None, CLASSES], [None, 3], [None], [None])
    functions: list[Callable[..., Any]] = [
        lambda x, y, m, n: nn.functional.ctc_loss(x, y, m, n, reduction="sum"),
        lambda x, y, m, n: torch.ctc_loss(x, y, m, n, 0, 2, False),
    ]
    outs = [function(scores, *rest) for function in functions]
    actual = Executor().run(feed=dict(zip(NAMES, given, strict=True)), fetch_list=outs, return_numpy=False)
    torch.testing.assert_close(actual, [functions[0](*given)] * 2)


def test_lengths_that_do_not_fit_raise_when_the_step_runs() -> None:
    variables = feeds([None, None, CLASSES], [None, 3], [None], [None])
    out = nn.CTCLoss()(*variables)
    given = [*padded(8, 2)[:2], torch.tensor([9, 8]), torch.tensor([3, 3])]
    with pytest.raises(ProgramError, match=r"ctc_loss.*test_ctc_loss.py:\d+.*input_lengths.*9"):
        Executor().run(feed=dict(zip(NAMES, given, strict=True)), fetch_list=[out])


def test_a_second_derivative_is_rejected() -> None:
    variables = feeds([None, None, CLASSES], [None, 3], [None], [None])
    (first,) = gradients(nn.CTCLoss()(*variables), variables[0])
    assert first is not None
    with pytest.raises(ProgramError, match="CTC losses have no second derivative"):
        gradients(first.pow(2).sum(), variables[0])


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("batch", [None, 3])
def test_fake_shapes_equal_real_shapes(batch: int | None, reduction: int) -> None:
    given = concatenated(8, batch or 1)
    if batch is None:
        given = [given[0][:, 0].contiguous(), given[1], given[2][0], given[3][0]]
    options = (0, reduction, False)
    real = ctc_loss(*given, *options)
    real_grad = ctc_loss_backward(torch.ones_like(real), *given, *options)
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = ctc_loss(*given, *options)
        fake_grad = ctc_loss_backward(torch.ones_like(real), *given, *options)
    for a, b in ((real, fake), (real_grad, fake_grad)):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


def test_the_gradient_kernel_works_below_autograd() -> None:
    given = padded(8, 3)
    with torch._C._AutoDispatchBelowAutograd():
        actual = ctc_loss_backward(torch.tensor(2.0), *given, 0, 1, False)
    leaf = given[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(2 * nn.CTCLoss()(leaf, *given[1:]), leaf)
    torch.testing.assert_close(actual, wanted)
