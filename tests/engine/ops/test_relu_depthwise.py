"""relu_depthwise and depthwise: ATen's numbers, in both layouts, for any window."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.errors import ConfigError
from argosy.engine.kernels import unavailable
from argosy.engine.ops.relu_depthwise import (
    BACKWARD,
    FORWARD,
    depthwise,
    depthwise_backward,
    relu_depthwise,
    relu_depthwise_backward,
)

aten = torch.ops.aten
pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
CASES = [  # batch, channels, image, kernel, stride, padding
    (2, 32, (12, 13), (3, 3), (1, 1), (1, 1)),
    (2, 24, (13, 14), (3, 3), (2, 2), (1, 1)),
    (2, 24, (14, 13), (3, 3), (2, 2), (0, 0)),
    (1, 19, (9, 8), (5, 5), (1, 1), (2, 2)),  # channels that fill no vector
    (2, 16, (11, 12), (5, 5), (2, 2), (2, 2)),
    (1, 3, (7, 7), (3, 3), (1, 1), (1, 1)),
    (1, 8, (6, 15), (2, 3), (3, 2), (0, 1)),
    (2, 8, (9, 10), (3, 1), (1, 3), (2, 0)),
    (1, 8, (5, 5), (4, 4), (1, 1), (3, 3)),
    (1, 8, (1, 1), (3, 3), (1, 1), (1, 1)),
    (1, 8, (2, 1), (3, 3), (2, 2), (1, 1)),
    (2, 8, (3, 2), (5, 5), (1, 1), (2, 2)),
    (1, 8, (4, 4), (3, 3), (1, 1), (4, 4)),  # more padding than kernel
    (1, 1, (6, 6), (3, 3), (1, 1), (1, 1)),
    (0, 8, (6, 6), (3, 3), (1, 1), (1, 1)),
    (8, 64, (28, 28), (3, 3), (1, 1), (1, 1)),  # enough for several threads
]
LAYOUTS = [torch.channels_last, torch.contiguous_format]


def tensors(case: Any, layout: torch.memory_format) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    batch, channels, image, kernel, *_ = case
    x = torch.randn(batch, channels, *image).contiguous(memory_format=layout)
    return x, torch.randn(channels, 1, *kernel)


def window(case: Any) -> tuple[list[int], list[int]]:
    return list(case[4]), list(case[5])


def aten_forward(x: torch.Tensor, w: torch.Tensor, case: Any, relu: bool) -> torch.Tensor:
    x = torch.relu(x) if relu else x
    y: torch.Tensor = aten.convolution(x, w, None, *window(case), [1, 1], False, [0, 0], x.shape[1])
    return y


def aten_backward(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, case: Any, relu: bool) -> Any:
    """In float64, so that only our rounding is seen."""
    seen = torch.relu(x) if relu else x
    arguments = (
        dy.double(),
        seen.double(),
        w.double(),
        None,
        *window(case),
        [1, 1],
        False,
        [0, 0],
        x.shape[1],
    )
    dx, dw, _ = aten.convolution_backward(*arguments, [True, True, False])
    return (aten.threshold_backward(dx, seen.double(), 0) if relu else dx).float(), dw.float()


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_aten(case: Any, layout: torch.memory_format, relu: bool) -> None:
    x, w = tensors(case, layout)
    forward, backward = (relu_depthwise, relu_depthwise_backward) if relu else (depthwise, depthwise_backward)
    y, wanted = forward(x, w, *window(case)), aten_forward(x, w, case, relu)
    torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(wanted)
    gradients = aten_backward(dy, x, w, case, relu)
    for mask in ([True, True], [True, False], [False, True]):
        actual = backward(dy, x, w, *window(case), mask)
        for one, other, is_wanted in zip(actual, gradients, mask, strict=True):
            if is_wanted:
                size = other.abs().max().item() if other.numel() else 1.0
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * max(size, 1))
            else:
                assert one is None


def assert_rounded_once(narrow: torch.Tensor, wide: torch.Tensor) -> None:
    """The float32 result of the same inputs, rounded to bfloat16; sums in another order may round to a neighbour."""
    assert narrow.dtype is torch.bfloat16
    size = wide.abs().max().item() if wide.numel() else 1.0
    torch.testing.assert_close(narrow.float(), wide, rtol=2.0**-8, atol=1e-6 * max(size, 1))


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_bfloat16_is_summed_in_float32_and_rounded_once(
    case: Any, layout: torch.memory_format, relu: bool
) -> None:
    x, w = (t.bfloat16() for t in tensors(case, layout))
    forward, backward = (relu_depthwise, relu_depthwise_backward) if relu else (depthwise, depthwise_backward)
    y = forward(x, w, *window(case))
    assert_rounded_once(y, forward(x.float(), w.float(), *window(case)))
    assert y.stride() == forward(x.float(), w.float(), *window(case)).stride()
    dy = torch.randn(y.shape).bfloat16()
    for mask in ([True, True], [True, False], [False, True]):
        narrow = backward(dy, x, w, *window(case), mask)
        wide = backward(dy.float(), x.float(), w.float(), *window(case), mask)
        for one, other, is_wanted in zip(narrow, wide, mask, strict=True):
            if is_wanted:
                assert_rounded_once(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_and_infinity_stay_in_bfloat16(layout: torch.memory_format) -> None:
    x, w = torch.zeros(1, 8, 5, 5).contiguous(memory_format=layout), torch.ones(8, 1, 3, 3)
    x[0, 2, 2, 2], x[0, 3, 2, 2], x[0, 4, 2, 2] = torch.nan, torch.inf, 3e38
    y = relu_depthwise(x.bfloat16(), w.bfloat16(), [1, 1], [1, 1])
    assert y.isnan().sum() == 9
    assert y.isinf().sum() == 9
    assert y[0, 4].max() > 2.9e38


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_the_fake_has_the_shape_and_the_strides_of_the_kernel(case: Any, layout: torch.memory_format) -> None:
    x, w = tensors(case, layout)
    y = relu_depthwise(x, w, *window(case))
    real = [y, *relu_depthwise_backward(torch.randn_like(y), x, w, *window(case), [True, True])]
    with FakeTensorMode() as mode:
        x, w, dy = mode.from_tensor(x), mode.from_tensor(w), mode.from_tensor(y)
        fake = [relu_depthwise(x, w, *window(case))]
        fake += relu_depthwise_backward(dy, x, w, *window(case), [True, True])
    assert [(f.shape, f.stride()) for f in fake] == [(r.shape, r.stride()) for r in real]


def test_channels_last_stays_and_contiguous_stays() -> None:
    for layout in LAYOUTS:
        x, w = tensors(CASES[0], layout)
        assert relu_depthwise(x, w, [1, 1], [1, 1]).is_contiguous(memory_format=layout)


def test_memory_in_any_other_order_is_read_right() -> None:
    x, w = torch.randn(2, 16, 9, 20)[:, ::2, :, 3:12], torch.randn(3, 3, 1, 8).permute(3, 2, 0, 1)
    dy = torch.randn(2, 9, 9, 8).permute(0, 3, 1, 2)  # channels_last, while x becomes contiguous
    case = (2, 8, (9, 9), (3, 3), (1, 1), (1, 1))
    torch.testing.assert_close(relu_depthwise(x, w, *window(case)), aten_forward(x, w, case, True))
    actual = relu_depthwise_backward(dy, x, w, *window(case), [True, True])
    torch.testing.assert_close(actual, aten_backward(dy, x, w, case, True), rtol=1e-5, atol=1e-4)
    assert actual[1].stride() == torch.empty_like(w).stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_stays_nan_and_zero_passes_no_gradient(layout: torch.memory_format) -> None:
    x, w = torch.zeros(1, 8, 5, 5).contiguous(memory_format=layout), torch.ones(8, 1, 3, 3)
    x[0, 2, 2, 2], x[0, 3, 2, 2], x[0, 4, 2, 2] = torch.nan, torch.inf, -torch.inf
    y = relu_depthwise(x, w, [1, 1], [1, 1])
    assert y[0, 2, 1:4, 1:4].isnan().all()
    assert y.isnan().sum() == 9
    assert y[0, 3, 1:4, 1:4].isinf().all()
    assert y.isinf().sum() == 9
    dx, _ = relu_depthwise_backward(torch.ones_like(y), x, w, [1, 1], [1, 1], [True, True])
    passed = aten.threshold_backward(torch.full_like(x, 9.0), torch.relu(x), 0)
    torch.testing.assert_close(dx, passed)


def test_two_runs_give_the_same_bits() -> None:
    x, w = tensors(CASES[-1], torch.channels_last)
    dy = torch.randn_like(x)
    one, other = (relu_depthwise_backward(dy, x, w, [1, 1], [1, 1], [True, True]) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize(
    ("x", "w", "stride", "message"),
    [
        (torch.zeros(1, 4, 5, 5, dtype=torch.float64), torch.zeros(4, 1, 3, 3), [1, 1], "float32"),
        (torch.zeros(4, 5, 5), torch.zeros(4, 1, 3, 3), [1, 1], "images"),
        (torch.zeros(1, 4, 5, 5), torch.zeros(8, 1, 3, 3), [1, 1], "one filter per channel"),
        (torch.zeros(1, 4, 5, 5), torch.zeros(4, 1, 3, 3), [0, 1], "stride"),
        (torch.zeros(1, 4, 5, 5), torch.zeros(4, 1, 7, 7), [1, 1], "larger than the padded image"),
    ],
)
def test_what_is_no_depthwise_convolution_is_refused(x: Any, w: Any, stride: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        depthwise(x, w, stride, [0, 0])


def test_a_gradient_of_another_shape_is_refused() -> None:
    x, w = tensors(CASES[0], torch.channels_last)
    with pytest.raises(ConfigError, match="it must be as y"):
        relu_depthwise_backward(x[:1], x, w, [1, 1], [1, 1], [True, True])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_search_may_choose_gives_the_same(layout: torch.memory_format) -> None:
    case = CASES[1]
    x, w = tensors(case, layout)
    ours, atens = (run(x, w, *window(case)) for run in FORWARD.values())
    assert ours.stride() == atens.stride()
    torch.testing.assert_close(ours, atens, rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(ours)
    for mask in ([True, True], [True, False], [False, True]):
        pairs = zip(*(run(dy, x, w, *window(case), mask) for run in BACKWARD.values()), strict=True)
        for one, wanted in pairs:
            assert (one is None) == (wanted is None)
            if one is not None and wanted is not None:
                assert one.stride() == wanted.stride()
                torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
