"""convolution: every kernel that it may choose has the results of ATen's, and the rules choose as measured."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine import kernels
from argosy.engine.kernels import choices
from argosy.engine.ops.convolution import (
    FORWARD,
    OF_INPUT,
    OF_WEIGHT,
    Kernels,
    convolution,
    convolution_backward,
    forward_rule,
    of_input_rule,
    of_weight_rule,
)
from argosy.engine.runtime.flags import set_flags

aten = torch.ops.aten
IS_NATIVE = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""True if this CPU has 16-bit arithmetic."""
CASES = [  # batch, channels, outputs, image, kernel, stride, padding
    (2, 16, 24, (4, 4), (3, 3), (1, 1), (1, 1)),
    (3, 16, 24, (5, 4), (3, 3), (2, 2), (1, 1)),
    (1, 8, 8, (6, 5), (3, 2), (2, 1), (0, 2)),
    (2, 512, 512, (2, 2), (1, 1), (1, 1), (0, 0)),  # by rule all products
    (2, 64, 64, (5, 5), (3, 3), (1, 1), (1, 1)),  # by rule the weight gradient is the transposed product
    (2, 64, 64, (4, 4), (1, 1), (2, 2), (0, 0)),
    (1, 8, 8, (1, 1), (3, 3), (1, 1), (1, 1)),
    (0, 64, 64, (4, 4), (3, 3), (1, 1), (1, 1)),
    (40, 64, 64, (14, 14), (3, 3), (1, 1), (1, 1)),  # more than _MOST_BYTES of patches: in two pieces
]


@pytest.fixture(autouse=True)
def own_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that was searched on this machine before."""
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    choices.of_process.cache_clear()
    yield
    choices.of_process.cache_clear()


def channels_last(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).contiguous(memory_format=torch.channels_last)


def window(stride: Any, padding: Any) -> tuple[Any, ...]:
    return list(stride), list(padding), [1, 1], False, [0, 0], 1


def assert_near(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    """1e-5 of the largest value: sums in another order."""
    assert actual.shape == wanted.shape
    if wanted.numel():
        assert (actual - wanted).abs().max() <= 1e-5 * wanted.abs().max().clamp(min=1e-3)
    assert actual.is_contiguous() or actual.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("case", "with_bias", "is_searching"),
    [
        (case, with_bias, is_searching)
        for number, case in enumerate(CASES)
        for with_bias, is_searching in ((False, False), (True, False), (number % 2 == 0, True))
    ],
)
def test_forward_and_backward_are_those_of_aten(case: Any, with_bias: bool, is_searching: bool) -> None:
    set_flags({choices.FLAG: is_searching})
    batch, channels, outputs, image, kernel, stride, padding = case
    x, w = channels_last(batch, channels, *image), channels_last(outputs, channels, *kernel)
    bias = torch.randn(outputs) if with_bias else None
    try:
        actual = convolution(x, w, bias, *window(stride, padding))
        wanted = aten.convolution(x, w, bias, *window(stride, padding))
        assert_near(actual, wanted)
        assert actual.is_contiguous(memory_format=torch.channels_last)
        grad = channels_last(*wanted.shape)
        arguments = (grad, x, w, [outputs] if with_bias else None, *window(stride, padding))
        theirs = aten.convolution_backward(*arguments, [True, True, with_bias])
        for mask in ([True, True, with_bias], [False, True, False], [True, False, with_bias]):
            ours = convolution_backward(*arguments, mask)
            for one, other, is_wanted in zip(ours, theirs, mask, strict=True):
                if is_wanted:
                    assert_near(one, other)
    finally:
        set_flags({choices.FLAG: False})


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(0, 3),
    channels=st.sampled_from([8, 16, 24, 64]),
    outputs=st.sampled_from([8, 16, 40, 64]),
    image=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.sampled_from([(1, 1), (3, 3), (3, 1), (5, 5)]),
    stride=st.sampled_from([(1, 1), (2, 2), (1, 2)]),
)
def test_every_alternative_computes_the_same(
    batch: int, channels: int, outputs: int, image: Any, kernel: Any, stride: Any
) -> None:
    padding = [size // 2 for size in kernel]
    x, w = channels_last(batch, channels, *image), channels_last(outputs, channels, *kernel)
    arguments = (list(stride), padding)
    forward, of_input, of_weight = (
        {name: run for name, run in p.items() if "winograd" not in name}
        for p in (FORWARD, OF_INPUT, OF_WEIGHT)
    )
    outputs_of_each = [run(x, w, None, *arguments) for run in forward.values()]
    grad = channels_last(*outputs_of_each[0].shape)
    for alternatives in (
        outputs_of_each,
        *([f(grad, x, w, *arguments) for f in p.values()] for p in (of_input, of_weight)),
    ):
        for other in alternatives[1:]:
            assert_near(other, alternatives[0])


@pytest.mark.parametrize("case", CASES)
def test_every_alternative_in_bfloat16_is_near_the_float32_result(case: Any) -> None:
    """Products accumulate in float32; where several are added (overlapping patches, pieces), each is rounded first.

    Without 16-bit arithmetic, ATen's gradients add up in bfloat16, which these bounds exclude.
    """
    batch, channels, outputs, image, kernel, stride, padding = case
    x, w = (
        channels_last(batch, channels, *image).bfloat16(),
        channels_last(outputs, channels, *kernel).bfloat16(),
    )
    arguments = (list(stride), list(padding))
    wanted = FORWARD["aten"](x.float(), w.float(), None, *arguments)
    grad = torch.randn_like(wanted).bfloat16()
    wide = (grad.float(), x.float(), w.float(), *arguments)
    for _, run in narrow(FORWARD):
        assert_rounded(run(x, w, None, *arguments), wanted, 1)
    for name, run in narrow(OF_INPUT):
        if IS_NATIVE or name != "aten":
            assert_rounded(run(grad, x, w, *arguments), OF_INPUT["aten"](*wide), kernel[0] * kernel[1])
    for name, run in narrow(OF_WEIGHT):
        if IS_NATIVE or name != "aten":
            assert_rounded(run(grad, x, w, *arguments), OF_WEIGHT["aten"](*wide), 2)


def narrow(kernels: Kernels) -> list[tuple[str, Callable[..., torch.Tensor]]]:
    """Those that support bfloat16."""
    return [(name, run) for name, run in kernels.items() if not name.startswith("winograd")]


def assert_rounded(narrow: torch.Tensor, wide: torch.Tensor, terms: int) -> None:
    """Each of so many terms is rounded, and their sum; of the size of the largest value."""
    assert narrow.dtype is torch.bfloat16
    if wide.numel():
        assert (narrow.float() - wide).abs().max() <= 2.0**-9 * (terms**0.5 + 1) * wide.abs().max() + 1e-5


def test_in_bfloat16_rules_choose_aten_but_for_weight_gradients_that_it_would_sum_in_16_bits() -> None:
    x, w = channels_last(2, 512, 2, 2).bfloat16(), channels_last(512, 512, 1, 1).bfloat16()
    grad = torch.randn_like(convolution(x, w, None, *window((1, 1), (0, 0))))
    arguments = (x, w, None, [1, 1], [0, 0]), (grad, x, w, [1, 1], [0, 0])
    assert forward_rule(*arguments[0]) == of_input_rule(*arguments[1]) == "aten"
    assert of_weight_rule(*arguments[1]) == ("aten" if IS_NATIVE else "product")
    assert forward_rule(x.float(), w.float(), None, [1, 1], [0, 0]) == "product"


def test_a_search_knows_bfloat16_by_its_own_key() -> None:
    set_flags({choices.FLAG: True})
    try:
        for dtype in (torch.float32, torch.bfloat16):
            x, w = channels_last(2, 16, 4, 4).to(dtype), channels_last(16, 16, 1, 1).to(dtype)
            convolution(x, w, None, *window((1, 1), (0, 0)))
        (table,) = choices.of_process()._tables.values()
        assert [name.split(", ")[-2] for name in table] == ["float32", "bfloat16"]
        assert all(entry["ms"].keys() == {"aten", "product"} for entry in table.values())
    finally:
        set_flags({choices.FLAG: False})


def rules(batch: int, channels: int, outputs: int, size: int, kernel: int, stride: int) -> list[str]:
    """What forward and the gradients of input and weights run without a search."""
    x, w = torch.empty(batch, channels, size, size), torch.empty(outputs, channels, kernel, kernel)
    numbers = [stride] * 2, [kernel // 2] * 2
    grad = torch.empty(aten.convolution(x.to("meta"), w.to("meta"), None, *window(*numbers)).shape)
    return [
        forward_rule(x, w, None, *numbers),
        of_input_rule(grad, x, w, *numbers),
        of_weight_rule(grad, x, w, *numbers),
    ]


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((2, 512, 512, 2, 3, 1), ["product", "product", "product"]),
        ((8, 512, 512, 7, 3, 1), ["aten", "aten", "product"]),
        ((8, 256, 256, 14, 3, 1), ["aten", "aten", "winograd2"]),
        ((8, 64, 64, 56, 3, 1), ["winograd2", "winograd2", "winograd2"]),
        ((8, 128, 128, 56, 3, 2), ["aten", "aten", "transposed"]),
        ((8, 256, 1024, 14, 1, 1), ["aten", "aten", "product"]),
        ((8, 64, 256, 56, 1, 1), ["aten", "aten", "aten"]),
        ((8, 256, 512, 56, 1, 2), ["aten", "aten", "product"]),
        ((8, 32, 32, 56, 3, 1), ["winograd2", "winograd2", "aten"]),
        ((8, 24, 64, 56, 3, 1), ["aten", "aten", "aten"]),
    ],
)
def test_rules_without_a_search(sizes: Any, wanted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "are_ready", lambda waits: True)
    assert rules(*sizes) == wanted
    monkeypatch.setattr(kernels, "are_ready", lambda waits: False)
    assert "winograd2" not in rules(*sizes)


def test_a_search_fills_the_file_with_all_three_parts_and_a_second_one_measures_nothing() -> None:
    x, w = channels_last(2, 64, 7, 7), channels_last(64, 64, 3, 3)
    try:
        for _ in range(2):
            set_flags({choices.FLAG: True})
            grad = channels_last(2, 64, 7, 7)
            convolution(x, w, None, *window((1, 1), (1, 1)))
            convolution_backward(grad, x, w, None, *window((1, 1), (1, 1)), [True, True, False])
            (table,) = choices.of_process()._tables.values()
            kinds = [name.split(",")[0] for name in table]
            spent_s = choices.of_process().spent_s
            choices.of_process.cache_clear()
    finally:
        set_flags({choices.FLAG: False})
    assert sorted(kinds) == ["conv2d", "conv2d_grad input", "conv2d_grad weight"]
    assert spent_s == 0
