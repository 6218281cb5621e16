"""winograd: the results of a direct convolution within its bounds, for which sizes it is used, and its switch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from itertools import product

import pytest
import torch

from argosy.engine import kernels
from argosy.engine.errors import ConfigError
from argosy.engine.ops import winograd
from argosy.engine.ops.convolution import FORWARD, OF_INPUT, alternatives, weight_alternatives

aten = torch.ops.aten
BOUNDS = {2: 2e-6, 4: 4e-5}
"""Of the largest value, for up to 512 channels."""
WEIGHT_BOUNDS = {2: 1e-5, 4: 1e-4}
"""Of the gradient of the weights, which is a sum over all pixels."""
CASES = [  # batch, channels, outputs, image, padding
    (2, 32, 32, (8, 8), (1, 1)),
    (3, 64, 32, (7, 9), (1, 1)),
    (1, 32, 96, (5, 6), (0, 2)),
    (2, 32, 64, (14, 3), (2, 0)),
    (1, 32, 32, (1, 1), (1, 1)),
    (1, 32, 32, (1, 1), (2, 2)),
    (9, 64, 64, (15, 13), (1, 1)),
    (2, 512, 512, (7, 7), (1, 1)),
]


@pytest.fixture(autouse=True)
def built() -> Iterator[None]:
    if why := kernels.unavailable():
        pytest.skip(why)
    winograd._allowed.cache_clear()
    yield
    winograd._allowed.cache_clear()


def channels_last(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).contiguous(memory_format=torch.channels_last)


def window(padding: tuple[int, int]) -> tuple[object, ...]:
    return [1, 1], list(padding), [1, 1], False, [0, 0], 1


def error(actual: torch.Tensor, wanted: torch.Tensor) -> float:
    assert actual.shape == wanted.shape
    assert actual.is_contiguous(memory_format=torch.channels_last)
    return float((actual - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients_are_within_the_bound(
    case: tuple[int, int, int, tuple[int, int], tuple[int, int]],
) -> None:
    batch, channels, outputs, image, padding = case
    x, weight = channels_last(batch, channels, *image), channels_last(outputs, channels, 3, 3)
    bias = torch.randn(outputs)
    wanted = aten.convolution(x.double(), weight.double(), bias.double(), *window(padding))
    grad = channels_last(*wanted.shape)
    exact = (grad.double(), x.double(), weight.double())
    wanted_dx, wanted_dw, _ = aten.convolution_backward(*exact, None, *window(padding), [True, True, False])
    before = torch.get_num_threads()
    for tile, threads in product(winograd.TILES, (1, 3)):
        torch.set_num_threads(threads)
        try:
            y = winograd.forward(tile, x, weight, bias, [1, 1], list(padding))
            dx = winograd.of_input(tile, grad, x, weight, [1, 1], list(padding))
            dw = winograd.of_weight(tile, grad, x, weight, [1, 1], list(padding))
        finally:
            torch.set_num_threads(before)
        assert error(y, wanted) < BOUNDS[tile], (tile, threads)
        assert error(dx, wanted_dx) < BOUNDS[tile], (tile, threads)
        assert error(dw, wanted_dw) < WEIGHT_BOUNDS[tile], (tile, threads)


def test_a_nan_reaches_the_pixels_around_it() -> None:
    x, weight = channels_last(1, 32, 8, 8), channels_last(32, 32, 3, 3)
    x[0, 5, 4, 4] = torch.nan
    for tile in winograd.TILES:
        y = winograd.forward(tile, x, weight, None, [1, 1], [1, 1])
        assert y[0, :, 3:6, 3:6].isnan().all()


def test_an_infinite_pixel_makes_the_pixels_around_it_not_finite() -> None:
    x, weight = channels_last(1, 32, 8, 8), channels_last(32, 32, 3, 3)
    x[0, 5, 4, 4] = torch.inf
    for tile in winograd.TILES:
        y = winograd.forward(tile, x, weight, None, [1, 1], [1, 1])
        assert not y[0, :, 3:6, 3:6].isfinite().any()
        assert y[0, :, :2, :2].isfinite().all() or tile == 4


def test_results_do_not_depend_on_the_run() -> None:
    x, weight = channels_last(4, 64, 14, 14), channels_last(64, 64, 3, 3)
    grad, window = torch.randn_like(x), ([1, 1], [1, 1])
    first = winograd.forward(4, x, weight, None, *window), winograd.of_weight(4, grad, x, weight, *window)
    for _ in range(5):
        assert torch.equal(winograd.forward(4, x, weight, None, *window), first[0])
        assert torch.equal(winograd.of_weight(4, grad, x, weight, *window), first[1])


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "padding", "batch"),
    [
        (33, 32, 3, 1, 1, 1),
        (32, 48, 3, 1, 1, 1),
        (32, 32, 5, 1, 1, 1),
        (32, 32, 3, 2, 1, 1),
        (32, 32, 3, 1, 3, 1),
        (32, 32, 3, 1, 1, 0),
    ],
)
def test_other_convolutions_are_left_alone(
    channels: int, outputs: int, kernel: int, stride: int, padding: int, batch: int
) -> None:
    x, weight = channels_last(batch, channels, 8, 8), channels_last(outputs, channels, kernel, kernel)
    assert winograd.largest_tile(x, weight, [stride] * 2, [padding] * 2) == 0


def test_bfloat16_is_left_alone() -> None:
    x, weight = channels_last(1, 32, 8, 8).bfloat16(), channels_last(32, 32, 3, 3).bfloat16()
    assert winograd.largest_tile(x, weight, [1, 1], [1, 1]) == 0
    assert winograd.largest_weight_tile(x, weight, [1, 1], [1, 1]) == 0


def test_the_kernel_is_not_called_with_parts_of_vectors() -> None:
    x, weight = channels_last(1, 32, 8, 8), channels_last(40, 32, 3, 3)
    with pytest.raises(ValueError, match="multiples of 32"):
        winograd.forward(2, x, weight, None, [1, 1], [1, 1])


@pytest.mark.parametrize(("value", "names"), [("4", {2, 4}), ("2", {2}), ("0", set())])
def test_the_switch_limits_the_tiles(value: str, names: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_WINOGRAD", value)
    x, weight = channels_last(8, 32, 28, 28), channels_last(32, 32, 3, 3)
    winograds = {f"winograd{n}" for n in names}
    for kind in (FORWARD, OF_INPUT):
        allowed = alternatives(kind, 8 * 28 * 28, x, weight, [1, 1], [1, 1])
        assert allowed.keys() == {"aten", *winograds}
    by_weight = weight_alternatives(x, weight, [1, 1], [1, 1])
    assert by_weight.keys() == {"aten", "product", "transposed", *winograds}


def test_the_sums_of_all_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = channels_last(1, 512, 8, 8), channels_last(512, 512, 3, 3)
    for threads, tile in ((1, 4), (4, 2), (64, 0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert winograd.largest_weight_tile(x, weight, [1, 1], [1, 1]) == tile


def test_another_value_of_the_switch_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_WINOGRAD", "6")
    with pytest.raises(ConfigError, match="ARGOSY_WINOGRAD='6'"):
        winograd.largest_tile(channels_last(1, 32, 8, 8), channels_last(32, 32, 3, 3), [1, 1], [1, 1])
