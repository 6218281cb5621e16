"""convolution: with few pixels a matrix product, with the results of ATen's kernels."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch

from argosy.engine.ops.convolution import _MOST_PIXELS, convolution, convolution_backward

aten = torch.ops.aten
CASES = [  # batch, channels, outputs, image, kernel, stride, padding
    (2, 16, 24, (4, 4), (3, 3), (1, 1), (1, 1)),
    (3, 16, 24, (5, 4), (3, 3), (2, 2), (1, 1)),
    (1, 8, 8, (6, 5), (3, 2), (2, 1), (0, 2)),
    (2, 8, 16, (2, 2), (1, 1), (1, 1), (0, 0)),
    (2, 8, 16, (4, 4), (1, 1), (2, 2), (0, 0)),
    (1, 4, 4, (1, 1), (3, 3), (1, 1), (1, 1)),
    (0, 4, 6, (4, 4), (3, 3), (1, 1), (1, 1)),
    (40, 4, 6, (4, 4), (3, 3), (1, 1), (1, 1)),  # more pixels than a product is for
]


def channels_last(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).contiguous(memory_format=torch.channels_last)


def window(stride: Any, padding: Any) -> tuple[Any, ...]:
    return list(stride), list(padding), [1, 1], False, [0, 0], 1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_forward_and_backward_are_those_of_aten(case: Any, with_bias: bool) -> None:
    batch, channels, outputs, image, kernel, stride, padding = case
    x, w = channels_last(batch, channels, *image), channels_last(outputs, channels, *kernel)
    bias = torch.randn(outputs) if with_bias else None
    found = convolution(x, w, bias, *window(stride, padding))
    wanted = aten.convolution(x, w, bias, *window(stride, padding))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    grad = channels_last(*wanted.shape)
    for mask in ([True, True, with_bias], [False, True, False], [True, False, False]):
        arguments = (grad, x, w, [outputs] if with_bias else None, *window(stride, padding), mask)
        ours, theirs = convolution_backward(*arguments), aten.convolution_backward(*arguments)
        for one, other, is_wanted in zip(ours, theirs, mask, strict=True):
            if is_wanted:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
                assert one.is_contiguous() or one.is_contiguous(memory_format=torch.channels_last)


def test_the_last_case_goes_to_aten_and_the_others_do_not() -> None:
    pixels = [case[0] * case[3][0] * case[3][1] for case in CASES]
    assert [count > _MOST_PIXELS for count in pixels] == [False] * 7 + [True]
