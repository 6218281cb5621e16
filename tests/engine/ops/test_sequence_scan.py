"""sequence_scan: the order of the steps, lengths that do not fit, one gradient of two outputs."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.sequence_scan import sequence_scan, steps_of


def test_a_step_has_the_rows_of_all_sequences_that_are_long_enough() -> None:
    order, index, counts = steps_of(torch.tensor([1, 0, 3, 2]), 6)
    assert (order.tolist(), index.tolist(), counts) == ([2, 3, 0, 1], [1, 4, 0, 2, 5, 3], [3, 2, 1])
    _, backwards, _ = steps_of(torch.tensor([1, 0, 3, 2]), 6, is_reverse=True)
    assert backwards.tolist() == [3, 5, 0, 2, 4, 1]


@pytest.mark.parametrize("lengths", [[1, 2], [5, -1], [2, 3]])
def test_lengths_that_do_not_fit_the_rows_are_rejected(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="and there are 4 rows"):
        steps_of(torch.tensor(lengths), 4)


def test_the_result_of_each_row_is_at_its_place_and_can_be_differentiated() -> None:
    x = torch.randn(3, 6, requires_grad=True)
    weight, bias = torch.randn(2, 6, requires_grad=True), torch.zeros(6)
    args = (
        torch.tensor([1, 2]),
        [torch.zeros(2, 2)],
        [weight, bias],
        "gru",
        ["sigmoid", "tanh"],
        [0.0],
        False,
    )
    y, nothing = sequence_scan(x, *args)
    assert (y.shape, nothing.shape) == ((3, 2), (0,))
    alone, _ = sequence_scan(x[1:], torch.tensor([2]), [torch.zeros(1, 2)], *args[2:])
    torch.testing.assert_close(y[1:], alone)
    dx, dw = torch.autograd.grad(y[2].sum(), [x, weight])
    assert not dx[0].any()  # another sequence
    assert dx[1].any()
    assert dw.any()
