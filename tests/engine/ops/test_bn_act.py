"""bn_act: the numbers of ATen's ops in double, in every layout; NaN, empty batches, results written over gradients."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine import kernels
from argosy.engine.ops.activation import Activation
from argosy.engine.ops.bn_act import (
    ACTIVATIONS,
    FORWARD,
    bn_act,
    bn_act_backward,
    bn_act_backward_,
    bn_act_recompute,
)

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
aten = torch.ops.aten
EPS = 1e-5
LAYOUTS = [torch.contiguous_format, torch.channels_last]
sizes = st.tuples(*(st.integers(1, most) for most in (5, 70, 9, 9)))


def reference(x: Tensor, w: Tensor, b: Tensor, other: Tensor | None, act: str, dy: Tensor) -> list[Tensor]:
    """y and the gradients of x, w, b and other, by autograd in double."""
    given = [t.double().requires_grad_() for t in (x, w, b, *(() if other is None else (other,)))]
    t = torch.nn.functional.batch_norm(given[0], None, None, given[1], given[2], True, 0.0, EPS)
    y = Activation.known[act].forward(t if other is None else t + given[3], 1.0)
    return [y.detach(), *torch.autograd.grad(y, given, dy.double())]


def case(shape: tuple[int, ...], order: torch.memory_format, mean: float = 0.0) -> tuple[Tensor, ...]:
    """x, w, b, dy."""
    x = (torch.randn(shape) + mean).contiguous(memory_format=order)
    channels = shape[1]
    return (
        x,
        torch.rand(channels) + 0.5,
        torch.randn(channels),
        torch.randn(shape).contiguous(memory_format=order),
    )


def away_from_zero(z: Tensor) -> bool:
    """A relu's mask may differ where rounding decides; such a case says nothing."""
    return bool((z.abs() > 1e-5).all())


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("act", [*ACTIVATIONS, "none"])
@settings(max_examples=15, deadline=None)
@given(shape=sizes, mean=st.sampled_from([0.0, 3.0, 100.0]))
def test_gives_the_numbers_of_autograd(
    order: torch.memory_format, act: str, shape: tuple[int, ...], mean: float
) -> None:
    if shape[0] * shape[2] * shape[3] < 2:
        return  # no variance
    x, w, b, dy = case(shape, order, mean)
    z = torch.nn.functional.batch_norm(x.double(), None, None, w.double(), b.double(), True, 0.0, EPS)
    if act == "relu" and not away_from_zero(z):
        return
    y, found_mean, invstd = bn_act(x, w, b, None, EPS, act)
    back: Any = (None, x, None, w, b, found_mean, invstd, act, [True] * 3)
    gradients = bn_act_backward(dy, *back)
    over = bn_act_backward_(dy.clone(memory_format=torch.preserve_format), *back)
    bound = 2e-5 * (1 + mean) * max(1.0, float(invstd.max()))  # few samples that lie close together
    for one, other in zip((y, *gradients[:3]), reference(x, w, b, None, act, dy), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound * float(other.abs().max() + 1))
    assert all(torch.equal(a, c) for a, c in zip(gradients[:3], over[:3], strict=True))
    assert torch.equal(bn_act_recompute(x, w, b, None, found_mean, invstd, act), y)


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("twice", [False, True], ids=["one gradient", "two gradients"])
def test_adds_what_is_added_and_gives_its_gradient(order: torch.memory_format, twice: bool) -> None:
    x, w, b, dy = case((4, 24, 7, 5), order)
    other = torch.randn_like(x)
    y, mean, invstd = bn_act(x, w, b, other, EPS, "relu")
    half = dy / 2
    first, more = (half, half) if twice else (dy, None)
    actual = bn_act_backward(first, more, x, y, w, b, mean, invstd, "relu", [True] * 3)
    over = bn_act_backward_(
        first.clone(memory_format=torch.preserve_format), more, x, y, w, b, mean, invstd, "relu", [True] * 3
    )
    for one, wanted in zip((y, *actual), reference(x, w, b, other, "relu", dy), strict=True):
        torch.testing.assert_close(one.double(), wanted, rtol=2e-5, atol=2e-5)
    assert all(torch.equal(a, c) for a, c in zip(actual, over, strict=True))


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("act", [*ACTIVATIONS, "none"])
def test_what_a_search_may_choose_gives_the_same(order: torch.memory_format, act: str) -> None:
    x, w, b, _ = case((4, 24, 7, 5), order)
    for other in (None, torch.randn_like(x)) if act == "relu" else (None,):
        ours, atens = (run(x, w, b, other, EPS, act) for run in FORWARD.values())
        for one, wanted in zip(ours, atens, strict=True):
            assert one.stride() == wanted.stride()
            torch.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)


def test_only_what_the_mask_wants_is_computed() -> None:
    x, w, b, dy = case((2, 8, 3, 3), torch.channels_last)
    _, mean, invstd = bn_act(x, w, b, None, EPS, "relu")
    dx, dweight, dbias, dother = bn_act_backward(
        dy, None, x, None, w, b, mean, invstd, "relu", [False, True, False]
    )
    assert dx is dbias is dother is None
    assert dweight.shape == (8,)


def test_layouts_may_differ_and_weights_may_be_missing() -> None:
    x, _, _, dy = case((3, 16, 4, 4), torch.channels_last)
    ones, zeros = torch.ones(16), torch.zeros(16)
    y, mean, invstd = bn_act(x, None, None, None, EPS, "relu")
    actual = bn_act_backward(
        dy.contiguous(), None, x, None, None, None, mean, invstd, "relu", [True, False, False]
    )
    wanted = reference(x, ones, zeros, None, "relu", dy)
    torch.testing.assert_close(y.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actual[0].double(), wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 7), (2, 3, 4, 5, 2)], ids=str)
def test_takes_tensors_of_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    x, w, b, dy = case(shape, torch.contiguous_format)
    y, mean, invstd = bn_act(x, w, b, None, EPS, "tanh")
    actual = bn_act_backward(dy, None, x, None, w, b, mean, invstd, "tanh", [True] * 3)
    for one, wanted in zip((y, *actual[:3]), reference(x, w, b, None, "tanh", dy), strict=True):
        torch.testing.assert_close(one.double(), wanted, rtol=2e-5, atol=2e-5)


def test_an_empty_batch_is_refused_as_by_torch() -> None:
    x, w, b, _ = case((0, 4, 3, 3), torch.channels_last)
    with pytest.raises(ValueError, match=r"a batch norm was given \[0, 4, 3, 3\], which has no element"):
        bn_act(x, w, b, None, EPS, "relu")


def test_weights_may_lie_anywhere_but_must_be_enough() -> None:
    x, _, _, dy = case((3, 8, 4, 4), torch.channels_last)
    table = torch.rand(8, 3) + 0.5
    for w, b in ((table[:, 1], table[:, 2]), (table[:1, 0].expand(8), None)):
        y, mean, invstd = bn_act(x, w, b, None, EPS, "tanh")
        actual = bn_act_backward(dy, None, x, None, w, b, mean, invstd, "tanh", [True] * 3)
        wanted = reference(x, w, torch.zeros(8) if b is None else b, None, "tanh", dy)
        for one, other in zip((y, *actual[:3]), wanted, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)
    with pytest.raises(ValueError, match=r"weight is float32\[3\].*a contiguous \[C\]"):
        bn_act(x, table[0], None, None, EPS, "relu")


@pytest.mark.parametrize("order", LAYOUTS)
def test_a_gradient_in_another_order_is_written_over_all_the_same(order: torch.memory_format) -> None:
    x, w, b, _ = case((3, 8, 4, 5), order)
    other_order = LAYOUTS[order is torch.contiguous_format]
    dy = torch.randn(3, 8, 4, 5).contiguous(memory_format=other_order)
    other = torch.randn_like(x)
    for added in (None, other):
        y, mean, invstd = bn_act(x, w, b, added, EPS, "relu")
        back: Any = (None, x, None if added is None else y, w, b, mean, invstd, "relu", [True] * 3)
        wanted, given = bn_act_backward(dy, *back), dy.clone(memory_format=torch.preserve_format)
        actual = bn_act_backward_(given, *back)
        assert torch.equal(actual[0], wanted[0])
        assert torch.equal(given, wanted[0] if added is None else wanted[3])


def test_an_infinity_spoils_its_channel_as_in_torch() -> None:
    x, w, b, _ = case((2, 8, 4, 4), torch.channels_last)
    x[0, 3, 1, 1] = torch.inf
    actual, wanted = (
        bn_act(x, w, b, None, EPS, "none"),
        aten.native_batch_norm(x, w, b, None, None, True, 0.0, EPS),
    )
    assert [one.isnan().tolist() for one in actual] == [one.isnan().tolist() for one in wanted]


@pytest.mark.parametrize("order", LAYOUTS)
def test_a_nan_stays_one(order: torch.memory_format) -> None:
    x, w, b, _ = case((2, 8, 4, 4), order)
    x[0, 3, 1, 1] = torch.nan
    y = bn_act(x, w, b, None, EPS, "relu")[0]
    assert y[:, 3].isnan().all()
    assert not y[:, [0, 1, 2, 4, 5, 6, 7]].isnan().any()


def test_a_large_mean_costs_no_precision() -> None:
    x = torch.randn(8, 16, 9, 9) + 10_000
    _, mean, invstd = bn_act(x, None, None, None, EPS, "tanh")
    wanted = x.double().var((0, 2, 3), unbiased=False).add(EPS).rsqrt()
    torch.testing.assert_close(invstd.double(), wanted, rtol=1e-4, atol=0)
    torch.testing.assert_close(mean.double(), x.double().mean((0, 2, 3)), rtol=1e-6, atol=0)


@pytest.mark.parametrize("order", LAYOUTS)
def test_programs_see_the_shapes_and_strides_of_the_kernel(order: torch.memory_format) -> None:
    x, w, b, dy = case((2, 8, 3, 5), order)
    y, mean, invstd = bn_act(x, w, b, None, EPS, "relu")
    real = (y, mean, invstd, *bn_act_backward(dy, None, x, y, w, b, mean, invstd, "relu", [True] * 3))
    with FakeTensorMode() as mode:
        fx, fw, fb, fdy = (mode.from_tensor(t) for t in (x, w, b, dy))
        fy, fmean, finvstd = bn_act(fx, fw, fb, None, EPS, "relu")
        back = bn_act_backward(fdy, None, fx, fy, fw, fb, fmean, finvstd, "relu", [True] * 3)
    for one, fake in zip(real, (fy, fmean, finvstd, *back), strict=True):
        assert (one.shape, one.stride(), one.dtype) == (fake.shape, fake.stride(), fake.dtype)
