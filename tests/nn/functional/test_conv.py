"""Convolutions: every form of padding, both layouts, transposes."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import static, tensor
from argosy.engine.errors import ConfigError, FeedError
from argosy.nn import functional

Agree = Callable[..., None]

CONV: dict[int, Callable[..., Any]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TORCH: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
BACK: dict[int, Callable[..., Any]] = {
    1: functional.conv1d_transpose,
    2: functional.conv2d_transpose,
    3: functional.conv3d_transpose,
}
TORCH_BACK: dict[int, Callable[..., torch.Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}
SIZES = (7, 6, 5)


def first(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(-1, 1)


def last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions_are_torch_s(agree: Agree, n: int, stride: int, channels_last: bool) -> None:
    def build(x: Any, w: Any, b: Any) -> Any:
        more = {"data_format": LAST[n]} if channels_last else {}
        return CONV[n](x, w, b, stride, 1, **more)

    def expect(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = TORCH[n](first(x) if channels_last else x, w, b, stride, 1)
        return last(out) if channels_last else out

    x = (None, *SIZES[:n], 4) if channels_last else (None, 4, *SIZES[:n])
    agree(build, expect, x, (3, 4, *[3] * n), (3,), rtol=1e-4)


@pytest.mark.parametrize(
    ("padding", "pad"),
    [
        ("VALID", [0, 0, 0, 0]),
        ("same", [1, 1, 1, 1]),
        (1, [1, 1, 1, 1]),
        ([2, 1], [1, 1, 2, 2]),
        ([1, 2, 0, 1], [0, 1, 1, 2]),
        ([[1, 2], [0, 1]], [0, 1, 1, 2]),
        ([[0, 0], [0, 0], [1, 2], [0, 1]], [0, 1, 1, 2]),
    ],
)
def test_padding_has_many_forms(agree: Agree, padding: Any, pad: list[int]) -> None:
    agree(
        lambda x, w: functional.conv2d(x, w, padding=padding),
        lambda x, w: F.conv2d(F.pad(x, pad), w),
        (None, 2, 5, 6),
        (3, 2, 3, 3),
        rtol=1e-4,
    )


def test_padding_in_pairs_knows_where_the_channels_are(agree: Agree) -> None:
    agree(
        lambda x, w: functional.conv2d(x, w, padding=[[0, 0], [1, 2], [0, 1], [0, 0]], data_format="NHWC"),
        lambda x, w: last(F.conv2d(F.pad(first(x), [0, 1, 1, 2]), w)),
        (None, 5, 6, 2),
        (3, 2, 3, 3),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("stride", "kernel", "dilation"), [(1, 2, 1), (1, 3, 2), (2, 2, 2), (2, 3, 1), (3, 2, 1), (3, 3, 2)]
)
def test_same_gives_the_size_over_the_stride(agree: Agree, stride: int, kernel: int, dilation: int) -> None:
    reach = dilation * (kernel - 1) + 1

    def expect(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        pad: list[int] = []
        for size in (6, 7):
            total = max((math.ceil(size / stride) - 1) * stride + reach - size, 0)
            pad += [total // 2, total - total // 2]
        out = F.conv2d(F.pad(x, pad), w, None, stride, 0, dilation)
        assert out.shape[2:] == (math.ceil(7 / stride), math.ceil(6 / stride))
        return out

    agree(
        lambda x, w: functional.conv2d(x, w, None, stride, "SAME", dilation),
        expect,
        (None, 2, 7, 6),
        (3, 2, kernel, kernel),
        rtol=1e-4,
    )


def test_same_works_for_a_length_that_is_not_known(agree: Agree) -> None:
    def expect(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = max((math.ceil(x.shape[2] / 2) - 1) * 2 + 3 - x.shape[2], 0)
        return F.conv1d(F.pad(x, [total // 2, total - total // 2]), w, None, 2)

    agree(lambda x, w: functional.conv1d(x, w, None, 2, "SAME"), expect, (3, 2, None), (3, 2, 3), rtol=1e-4)


def test_groups_and_dilation_are_torch_s(agree: Agree) -> None:
    agree(
        lambda x, w: functional.conv2d(x, w, None, [1, 2], 2, [2, 1], 4),
        lambda x, w: F.conv2d(x, w, None, (1, 2), 2, (2, 1), 4),
        (None, 4, 5, 6),
        (8, 1, 3, 3),
        rtol=1e-4,
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_transposed_convolutions_are_torch_s(agree: Agree, n: int, channels_last: bool) -> None:
    def build(x: Any, w: Any, b: Any) -> Any:
        more = {"data_format": LAST[n]} if channels_last else {}
        return BACK[n](x, w, b, stride=2, padding=1, output_padding=1, groups=2, dilation=1, **more)

    def expect(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = TORCH_BACK[n](first(x) if channels_last else x, w, b, 2, 1, 1, 2)
        return last(out) if channels_last else out

    sizes = (3, 4, 2)[:n]
    x = (None, *sizes, 4) if channels_last else (None, 4, *sizes)
    agree(build, expect, x, (4, 3, *[3] * n), (6,), rtol=1e-4)


@pytest.mark.parametrize("size", [7, 8])
def test_output_size_chooses_among_what_is_possible(agree: Agree, size: int) -> None:
    agree(
        lambda x, w: functional.conv2d_transpose(x, w, None, 2, 1, output_size=[size, size]),
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, size - 7),
        (None, 2, 4, 4),
        (2, 3, 3, 3),
        rtol=1e-4,
    )


def test_output_size_determines_the_unknown_size_of_an_input() -> None:
    x = static.data("x", [None, 3, None, None])
    w = static.data("w", [3, 4, 3, 3])
    out = functional.conv2d_transpose(x, w, None, 2, output_size=[9, 8])
    assert out.shape == (-1, 4, 9, 8)
    exe, rng = static.Executor(), np.random.default_rng(0)
    feed = {
        "x": rng.normal(size=(2, 3, 4, 3)).astype("float32"),
        "w": rng.normal(size=(3, 4, 3, 3)).astype("float32"),
    }
    wanted = F.conv_transpose2d(torch.tensor(feed["x"]), torch.tensor(feed["w"]), None, 2, 0, (0, 1))
    np.testing.assert_allclose(exe.run(feed=feed, fetch_list=[out])[0], wanted, atol=1e-5)
    with pytest.raises(FeedError, match=r"built for x\[2\] == 4 \(decided at test_conv.py"):
        exe.run(feed={**feed, "x": np.ones((2, 3, 5, 3), "float32")}, fetch_list=[out])


def test_output_size_names_the_sizes_that_can_be_reached() -> None:
    x, w = tensor.ones([1, 2, 4, 4]), tensor.ones([2, 3, 3, 3])
    with pytest.raises(ConfigError, match=r"use \[7, 7\] to \[8, 8\]"):
        functional.conv2d_transpose(x, w, None, 2, 1, output_size=9)
    with pytest.raises(ConfigError, match="one of them"):
        functional.conv2d_transpose(x, w, None, 2, 1, 1, output_size=8)


def test_transposed_padding_may_differ_on_both_sides(agree: Agree) -> None:
    agree(
        lambda x, w: functional.conv2d_transpose(x, w, None, 2, [0, 1, 2, 0]),
        lambda x, w: F.conv_transpose2d(x, w, None, 2)[:, :, :-1, 2:],
        (None, 2, 4, 4),
        (2, 3, 3, 3),
        rtol=1e-4,
    )


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_same_gives_the_size_times_the_stride(agree: Agree, kernel: int, stride: int) -> None:
    def expect(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        over = max(kernel - stride, 0)
        out = F.conv_transpose1d(x, w, None, stride, 0, max(stride - kernel, 0))
        return out[:, :, over // 2 :][:, :, : 5 * stride]

    agree(
        lambda x, w: functional.conv1d_transpose(x, w, None, stride, "SAME"),
        expect,
        (None, 2, 5),
        (2, 3, kernel),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding": "FULL"}, "'SAME', 'VALID'"),
        ({"padding": [1, 2, 3]}, "3 numbers"),
        ({"padding": [[1, 1], [0, 0], [1, 1], [1, 1]]}, "batch or the channels"),
        ({"padding": [[1, 1], [0, 0], [1, 1]]}, "not 4 pairs"),
        ({"data_format": "NCWH"}, "NCHW or NHWC"),
        ({"stride": [1, 2, 3]}, "stride"),
        ({"dilation": "two"}, "whole numbers"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        functional.conv2d(tensor.ones([1, 2, 5, 5]), tensor.ones([3, 2, 3, 3]), **arguments)
