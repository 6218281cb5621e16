"""Pooling: every form of padding, both layouts, masks, adaptive windows."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.nn import functional

Agree = Callable[..., None]

SIZES = (7, 6, 5)
LAST = {2: "NHWC", 3: "NDHWC"}


def first(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(-1, 1)


def last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("stride", [None, 2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_is_torch_s(agree: Agree, n: int, stride: int | None, ceil_mode: bool) -> None:
    x = (None, 2, *SIZES[:n])
    agree(
        lambda x: getattr(functional, f"max_pool{n}d")(x, 3, stride, 1, ceil_mode=ceil_mode),
        lambda x: getattr(F, f"max_pool{n}d")(x, 3, stride, 1, ceil_mode=ceil_mode),
        x,
    )
    agree(
        lambda x: getattr(functional, f"avg_pool{n}d")(x, 3, stride, 1, ceil_mode=ceil_mode),
        lambda x: getattr(F, f"avg_pool{n}d")(x, 3, stride, 1, ceil_mode, count_include_pad=False),
        x,
    )


@pytest.mark.parametrize("n", [2, 3])
def test_channels_may_come_last(agree: Agree, n: int) -> None:
    x = (None, *SIZES[:n], 2)
    agree(
        lambda x: getattr(functional, f"max_pool{n}d")(x, 2, data_format=LAST[n]),
        lambda x: last(getattr(F, f"max_pool{n}d")(first(x), 2)),
        x,
    )
    agree(
        lambda x: getattr(functional, f"avg_pool{n}d")(x, 2, data_format=LAST[n]),
        lambda x: last(getattr(F, f"avg_pool{n}d")(first(x), 2)),
        x,
    )
    agree(
        lambda x: getattr(functional, f"adaptive_avg_pool{n}d")(x, 3, LAST[n]),
        lambda x: last(getattr(F, f"adaptive_avg_pool{n}d")(first(x), 3)),
        x,
    )


@pytest.mark.parametrize(
    ("padding", "pad"),
    [
        ("VALID", [0, 0, 0, 0]),
        ("SAME", [0, 1, 1, 1]),
        ([1, 0], [0, 0, 1, 1]),
        ([0, 1, 2, 0], [2, 0, 0, 1]),
        ([[0, 0], [0, 0], [1, 0], [0, 1]], [0, 1, 1, 0]),
        (2, [2, 2, 2, 2]),
    ],
)
def test_padding_counts_neither_as_maximum_nor_in_the_mean(
    agree: Agree, padding: Any, pad: list[int]
) -> None:
    x = (None, 2, 7, 6)
    inf = float("inf")
    agree(
        lambda x: functional.max_pool2d(x, 3, 2, padding),
        lambda x: F.max_pool2d(F.pad(x, pad, value=-inf), 3, 2),
        x,
    )

    def mean(x: torch.Tensor) -> torch.Tensor:
        total = F.avg_pool2d(F.pad(x, pad), 3, 2, divisor_override=1)
        return total / F.avg_pool2d(F.pad(torch.ones_like(x), pad), 3, 2, divisor_override=1)

    agree(lambda x: functional.avg_pool2d(x, 3, 2, padding), mean, x)
    agree(
        lambda x: functional.avg_pool2d(x, 3, 2, padding, exclusive=False),
        lambda x: F.avg_pool2d(F.pad(x, pad), 3, 2),
        x,
    )
    agree(
        lambda x: functional.avg_pool2d(x, 3, 2, padding, divisor_override=2),
        lambda x: F.avg_pool2d(F.pad(x, pad), 3, 2, divisor_override=2),
        x,
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_mask_says_where_the_maximum_was(agree: Agree, n: int) -> None:
    def expect(x: torch.Tensor) -> Any:
        out, places = getattr(F, f"max_pool{n}d")(x, 2, return_indices=True)
        return out, places.int()

    agree(
        lambda x: getattr(functional, f"max_pool{n}d")(x, 2, return_mask=True), expect, (None, 2, *SIZES[:n])
    )


def test_a_mask_needs_what_torch_can_count() -> None:
    x = tensor.ones([1, 4, 4, 4])
    with pytest.raises(ConfigError, match="return_mask"):
        functional.max_pool2d(x, 2, return_mask=True, data_format="NHWC")
    with pytest.raises(ConfigError, match="return_mask"):
        functional.max_pool2d(x, 2, padding=[0, 1, 0, 1], return_mask=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3])
def test_adaptive_pooling_is_torch_s(agree: Agree, n: int, size: int) -> None:
    def expect_places(x: torch.Tensor) -> Any:
        out, places = getattr(F, f"adaptive_max_pool{n}d")(x, size, return_indices=True)
        return out, places.int()

    x = (None, 2, *SIZES[:n])
    for kind in ("avg", "max"):
        name = f"adaptive_{kind}_pool{n}d"
        agree(lambda x, f=name: getattr(functional, f)(x, size), lambda x, f=name: getattr(F, f)(x, size), x)
    agree(
        lambda x: getattr(functional, f"adaptive_max_pool{n}d")(x, size, return_mask=True), expect_places, x
    )


def test_none_keeps_a_size(agree: Agree) -> None:
    agree(
        lambda x: functional.adaptive_avg_pool2d(x, [None, 2]),
        lambda x: F.adaptive_avg_pool2d(x, (7, 2)),
        (None, 2, 7, 6),
    )


def test_wrong_arguments_are_named() -> None:
    x = tensor.ones([1, 4, 4, 4])
    with pytest.raises(ConfigError, match="divisor_override=0"):
        functional.avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(ConfigError, match="output_size"):
        functional.adaptive_avg_pool2d(x, [1, 2, 3])
    with pytest.raises(ConfigError, match="kernel_size"):
        functional.max_pool2d(x, [1, 2, 3])
