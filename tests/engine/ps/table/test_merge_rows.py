"""merge_rows: one gradient for each row, summed in a fixed order."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ps.table.table import merge_rows


def part(*ids: int) -> tuple[Tensor, Tensor]:
    return torch.tensor(ids, dtype=torch.int64), torch.randn(len(ids), 3)


def test_ids_come_sorted_with_the_scaled_sum_of_their_gradients() -> None:
    a, b = part(7, -2), part(3, 7, 7)
    ids, grads = merge_rows([a, b], 0.5)
    assert ids.tolist() == [-2, 3, 7]
    expected = torch.stack([a[1][1], b[1][0], a[1][0] + b[1][1] + b[1][2]]) * 0.5
    torch.testing.assert_close(grads, expected)


def test_the_order_of_summation_is_that_of_the_parts_bit_for_bit() -> None:
    parts = [part(*torch.randperm(5000)[:2000].tolist()) for _ in range(4)]
    ids, grads = merge_rows(parts, 1.0)
    expected: dict[int, Tensor] = {}
    for part_ids, rows in parts:
        for row_id, row in zip(part_ids.tolist(), rows, strict=True):
            expected[row_id] = expected.get(row_id, torch.zeros(3)) + row
    assert torch.equal(grads, torch.stack([expected[i] for i in ids.tolist()]))
    again = merge_rows([(i.clone(), g.clone()) for i, g in parts], 1.0)
    assert torch.equal(again[1], grads)


def test_one_part_and_empty_parts_are_fine() -> None:
    ids, grads = merge_rows([part(), part()], 1.0)
    assert ids.shape == (0,)
    assert grads.shape == (0, 3)


def test_the_parts_are_left_as_they_are() -> None:
    a = part(1, 2)
    before = a[1].clone()
    merge_rows([a], 0.5)[1].zero_()
    assert torch.equal(a[1], before)
