"""dgc: which elements are sent, how many, and how the sparsity grows."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.ops.dgc import largest, num_sent, sparsity_at


@pytest.mark.parametrize("size", [16384, 65537, 1_000_000])
@pytest.mark.parametrize("sparsity", [0.5, 0.99, 0.999, 0.9999])
@pytest.mark.parametrize("kind", ["normal", "sorted", "sparse", "periodic"])
def test_the_largest_elements_are_found_exactly(size: int, sparsity: float, kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(size)
    if kind == "sorted":
        x = x.sort().values
    elif kind == "sparse":  # fewer elements that are not zero than are sent
        x[10:] = 0
    elif kind == "periodic":  # a sample with a stride sees only small elements
        x = torch.where(torch.arange(size) % (size // 16384) == 0, 1e-6 * x, x)
    count = num_sent(size, sparsity)
    indices = largest(x, count)
    assert indices.unique().numel() == count
    top = np.partition(x.abs().numpy(), -count)[-count:]
    np.testing.assert_array_equal(x[indices].abs().sort().values.numpy(), np.sort(top))


def test_at_least_one_element_is_sent() -> None:
    assert [num_sent(16384, s) for s in (0.0, 0.75, 0.999, 0.999999)] == [16384, 4096, 16, 1]


def test_the_sparsities_follow_each_other_in_equal_parts_of_the_rampup() -> None:
    levels = [0.75, 0.9375, 0.999]
    assert [sparsity_at(since, 6, levels) for since in range(8)] == [0.75, 0.75, 0.9375, 0.9375, *[0.999] * 4]
    assert [sparsity_at(since, 1, levels) for since in range(2)] == [0.75, 0.999]
