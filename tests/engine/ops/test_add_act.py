"""add_act: the numbers of ATen's two ops, forward and backward, for every activation."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine import kernels
from argosy.engine.ops.activation import Activation
from argosy.engine.ops.add_act import (
    act_add,
    act_backward,
    act_backward_,
    add_act,
    add_act_,
    add_act_keep,
)

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
NAMES = [name for name in Activation.known if name != "none"]
SCALE = 0.7


def applied(name: str, x: Tensor) -> Tensor:
    return Activation.known[name].forward(x, SCALE)


@pytest.mark.parametrize("name", NAMES)
def test_forward_gives_the_numbers_of_the_two_ops(name: str) -> None:
    a, b = torch.randn(3, 5, 7) * 4, torch.randn(3, 5, 7) * 4
    wanted = applied(name, a.double() + b.double())
    for actual in (add_act(a, b, name, SCALE), add_act_keep(a, b, name, SCALE)[0]):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(add_act_keep(a, b, name, SCALE)[1], a + b)
    first = act_add(a, b, name, SCALE)
    torch.testing.assert_close(first.double(), a.double() + applied(name, b.double()), rtol=1e-5, atol=1e-6)
    expected = add_act(a, b, name, SCALE)
    assert torch.equal(add_act_(a, b, name, SCALE), expected)
    assert torch.equal(a, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("twice", [False, True], ids=["one gradient", "two gradients"])
def test_backward_gives_the_numbers_of_autograd(name: str, twice: bool) -> None:
    z = (torch.randn(4, 33) * 3).double().requires_grad_()
    y = applied(name, z)
    dy, more = torch.randn(4, 33), torch.randn(4, 33) if twice else None
    total = dy if more is None else dy + more
    wanted = torch.autograd.grad(y, z, total.double())[0]
    ref = (z if Activation.known[name].from_input else y).detach().float()
    actual = act_backward(dy, more, ref, name, SCALE)
    torch.testing.assert_close(actual.double(), wanted, rtol=1e-4, atol=2e-6)
    assert torch.equal(act_backward_(dy, more, ref, name, SCALE), actual)
    assert torch.equal(dy, actual)


def test_a_bias_is_repeated() -> None:
    a, b = torch.randn(6, 4, 5), torch.randn(4, 5)
    assert torch.equal(add_act(a, b, "relu", 1.0), torch.relu(a + b))
    large, bias = torch.randn(2000, 65), torch.randn(65)  # several threads, whose parts cut rows
    assert torch.equal(add_act(large, bias, "relu", 1.0), torch.relu(large + bias))


def test_orders_in_memory_may_differ() -> None:
    a = torch.randn(2, 8, 3, 3).contiguous(memory_format=torch.channels_last)
    b = torch.randn(2, 8, 3, 3)
    actual = add_act(a, b, "relu", 1.0)
    assert torch.equal(actual, torch.relu(a + b))
    assert torch.equal(act_backward(b, None, actual, "relu", 1.0), torch.where(actual > 0, b, 0))


def test_a_bias_is_repeated_by_its_place_not_by_memory() -> None:
    last = torch.randn(2, 8, 3, 5).contiguous(memory_format=torch.channels_last)
    for bias in (torch.randn(5), torch.randn(8, 3, 5)):
        assert torch.equal(add_act(last, bias, "relu", 1.0), torch.relu(last + bias))
    turned = torch.randn(5, 6).t()
    assert torch.equal(
        add_act(turned, torch.arange(5.0), "relu", 1.0), torch.relu(turned + torch.arange(5.0))
    )


def test_tanh_is_right_near_zero() -> None:
    a = torch.logspace(-9, 0, 200)
    torch.testing.assert_close(add_act(a, torch.zeros(200), "tanh", 1.0), torch.tanh(a), rtol=3e-7, atol=0)


def test_a_nan_stays_one() -> None:
    a = torch.tensor([torch.nan, 1.0, -1.0, torch.inf])
    for name in NAMES:
        actual = add_act(a, torch.zeros(4), name, SCALE)
        assert actual.isnan().tolist() == [True, False, False, False], name


def test_numbers_far_out_stay_finite() -> None:
    a = torch.tensor([-1e4, -100.0, -88.0, 88.0, 100.0, 1e4])
    for name in ("tanh", "sigmoid", "silu", "gelu", "gelu_tanh"):
        actual = add_act(a, torch.zeros(6), name, 1.0)
        torch.testing.assert_close(actual, applied(name, a), rtol=1e-5, atol=1e-6)


def test_an_empty_tensor_stays_one() -> None:
    assert add_act(torch.empty(0, 3), torch.empty(0, 3), "relu", 1.0).shape == (0, 3)


def test_programs_see_the_shapes_and_strides_of_the_kernel() -> None:
    a = torch.randn(2, 8, 3, 3).contiguous(memory_format=torch.channels_last)
    b = torch.randn(2, 8, 3, 3)
    real = (add_act(a, b, "relu", 1.0), act_backward(b, None, a, "relu", 1.0))
    with FakeTensorMode() as mode:
        fa, fb = mode.from_tensor(a), mode.from_tensor(b)
        fakes = (add_act(fa, fb, "relu", 1.0), act_backward(fb, None, fa, "relu", 1.0))
    for one, fake in zip(real, fakes, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (fake.shape, fake.stride(), fake.dtype)
