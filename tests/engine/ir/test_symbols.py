"""Sizes that are known only when data is fed, and what must hold between them."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.errors import FeedError, ProgramError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor


def run(y: Any, **shapes: tuple[int, ...]) -> tuple[int, ...]:
    feed = {name: torch.zeros(shape) for name, shape in shapes.items()}
    actual: tuple[int, ...] = Executor().run(feed=feed, fetch_list=[y])[0].shape
    return actual


def test_labels_are_n_and_then_d1() -> None:
    program = default_main_program()
    program.data("x", [None, None, 3])
    lines = str(program).splitlines()
    assert lines[1].endswith("float32[N, D1, 3]")


def test_feeds_that_must_agree_are_both_named() -> None:
    program = default_main_program()
    y = program.data("a", [None, 3]) + program.data("b", [None, 3])
    assert run(y, a=(4, 3), b=(4, 3)) == (4, 3)
    with pytest.raises(FeedError, match="'a' has size 4 in dimension 0, feed 'b' has size 5"):
        run(y, a=(4, 3), b=(5, 3))


def test_a_decision_on_a_size_holds_for_all_that_is_fed() -> None:
    x = default_main_program().data("x", [None, 3])
    y = default_main_program().call(lambda t: t.sum(0) if t.shape[0] > 4 else t.prod(0), (x,), {})
    assert run(y, x=(7, 3)) == (3,)
    with pytest.raises(FeedError, match=r"the program was built for x\[0\] > 4"):
        run(y, x=(3, 3))


def test_a_decision_on_the_size_of_a_feed_that_is_not_needed_counts_too() -> None:
    x = default_main_program().data("x", [None, 3])
    y = default_main_program().call(lambda t: torch.ones(2) if t.shape[0] == 3 else torch.zeros(2), (x,), {})
    with pytest.raises(FeedError, match=r"built for x\[0\] != 3"):
        run(y, x=(3, 3))


def test_a_slice_takes_what_there_is() -> None:
    x = default_main_program().data("x", [None, 3])
    y = x[0:3]
    assert run(y, x=(5, 3)) == (3, 3)
    assert run(y, x=(1, 3)) == (1, 3)


@pytest.mark.parametrize("batch", [1, 2, 4, 13, 16, 64])
def test_any_batch_fits_a_reshape_and_a_convolution(batch: int) -> None:
    program = default_main_program()
    x = program.data("x", [None, 3, 4])
    y = program.call(lambda t: t.reshape(4, t.size(0), 3), (x,), {})
    w = torch.zeros(2, 3, 3, 3)
    image = program.data("image", [None, 3, 8, 8])
    z = torch.nn.functional.conv2d(image, w)
    assert run(y, x=(batch, 3, 4)) == (4, batch, 3)
    assert run(z, image=(batch, 3, 8, 8)) == (batch, 2, 6, 6)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_number_that_is_computed_from_a_size_is_that_of_the_feed(batch: int) -> None:
    x = default_main_program().data("x", [None, 3])
    y = x * (1 + 1 / x.size(0))
    given = np.ones((batch, 3), "float32")
    (actual,) = Executor().run(feed={"x": given}, fetch_list=[y])
    np.testing.assert_allclose(actual, given * (1 + 1 / batch), rtol=1e-6)


@pytest.mark.parametrize("function", [torch.masked.mean, torch.masked.std, torch.masked.var])
def test_torch_masked_without_a_mask_says_which_sizes_it_needs(function: Any) -> None:
    x = default_main_program().data("x", [None, 3])
    more = {} if function is torch.masked.mean else {"unbiased": True}
    with pytest.raises(
        ProgramError, match=r"at test_symbols.py:\d+.* needs the sizes of 'x' \(float32\[-1, 3\]\)"
    ):
        function(x, dim=1, **more)
    y = function(x, dim=1, mask=x > -1, **more)
    assert run(y, x=(5, 3)) == (5,)
