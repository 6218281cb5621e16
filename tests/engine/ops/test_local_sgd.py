"""store_mean and adapt_k_steps: means, and the number of local steps by Paddle's rule."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.local_sgd import adapt_k_steps, store_mean


def test_the_mean_is_stored() -> None:
    target = torch.zeros(2)
    store_mean(target, torch.tensor([3.0, 6.0]), 3)
    assert target.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("loss", "rate", "expected"),
    [
        (2.0, 0.1, 2),  # as in step 1: sqrt(4)
        (0.5, 0.1, 1),
        (1.9, 0.05, 3),  # ceil(sqrt(7.6))
        (2.0, 1e-4, 16),  # at most 16
        (2.0, 0.0, 16),  # infinite
        (0.0, 0.0, 1),  # not a number
        (float("nan"), 0.1, 1),
    ],
)
def test_k_follows_the_loss_and_the_rate(loss: float, rate: float, expected: int) -> None:
    k_steps, last, step = torch.tensor([4]), torch.tensor([3]), torch.tensor([7])
    first, total = torch.tensor([2.0, 0.1]), torch.tensor([2 * loss, 2 * rate])
    adapt_k_steps(k_steps, last, step, first, total, 2, 4, 1)
    assert (k_steps.item(), last.item()) == (expected, 7)


def test_k_does_not_change_before_the_begin_step() -> None:
    k_steps, last, step = torch.tensor([4]), torch.tensor([0]), torch.tensor([5])
    adapt_k_steps(k_steps, last, step, torch.ones(2), torch.ones(2), 2, 4, 5)
    assert (k_steps.item(), last.item()) == (4, 5)
