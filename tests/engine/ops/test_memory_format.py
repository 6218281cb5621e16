"""match_layout: what a kernel that walks raw memory gets to see, and what is written back."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from argosy.engine.ops.memory_format import match_layout

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "transposed": lambda t: t.mT.contiguous().mT,
    "every second": lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
    "expanded in memory": lambda t: torch.cat([t, t], dim=1)[:, : t.shape[1]],
}


def memory(t: Tensor) -> Tensor:
    """The tensor as a kernel sees it that takes an address and a count."""
    return t.as_strided((t.numel(),), (1,))


def walk(param: Tensor, grad: Tensor, state: Tensor) -> None:
    """state += grad, param -= state, element by element in memory."""
    memory(state).add_(memory(grad))
    memory(param).sub_(memory(state))


@given(
    shape=st.tuples(*[st.integers(1, 4)] * 4),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 3),
)
def test_the_layout_of_the_tensors_does_not_change_the_result(
    shape: tuple[int, ...], layouts: tuple[str, str, str]
) -> None:
    plain = [torch.randn(shape, dtype=torch.float64) for _ in range(3)]
    param, grad, state = (LAYOUTS[name](t.clone()) for name, t in zip(layouts, plain, strict=True))
    strides = param.stride(), grad.stride(), state.stride()
    match_layout(walk, param, grad, state)
    expected = plain[1] + plain[2]
    torch.testing.assert_close(state, expected, rtol=0, atol=0)
    torch.testing.assert_close(param, plain[0] - expected, rtol=0, atol=0)
    torch.testing.assert_close(grad, plain[1], rtol=0, atol=0)
    assert strides == (param.stride(), grad.stride(), state.stride())


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_tensors_in_the_same_order_are_not_copied(layout: str) -> None:
    given_ = [LAYOUTS[layout](torch.randn(2, 3, 4, 5)) for _ in range(3)]
    seen: list[Tensor] = []
    match_layout(lambda *tensors: seen.extend(tensors), *given_)
    assert all(a is b for a, b in zip(seen, given_, strict=True))


def test_a_filter_of_one_pixel_has_one_order_whatever_its_strides() -> None:
    param = torch.randn(8, 4, 1, 1).contiguous(memory_format=torch.channels_last)
    grad = torch.randn(32).view(8, 4, 1, 1)
    seen: list[Tensor] = []
    match_layout(lambda *tensors: seen.extend(tensors), param, grad)
    assert seen[1] is grad


@pytest.mark.parametrize("shape", [(3, 4), (2, 4), (12,)])
def test_another_shape_is_refused_before_memory_is_touched(shape: tuple[int, ...]) -> None:
    param = torch.zeros(4, 3)
    with pytest.raises(ValueError, match=r"parameter of shape \[4, 3\] has a gradient or state of shape"):
        match_layout(walk, param, torch.ones(4, 3), torch.ones(shape))
    assert not param.any()
