"""gather_rows: rows and ids of all ranks in the order of the ranks, however many each has."""

# SPDX-License-Identifier: Apache-2.0

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from argosy.engine import collective
from argosy.engine.ops.collectives import gather_rows
from tests.ranks import ForkServer

SHAPES = [[(2, 3), (4,)], [(0,), (3,)], [(2, 0), (0,)]]
"""Of the ids of rank 0 and rank 1."""


def on_two_ranks() -> None:
    collective.connect()
    for shapes in SHAPES:
        for kind in (torch.int32, torch.int64):
            torch.manual_seed(3)
            ids = [torch.randint(9, shape, dtype=kind) for shape in shapes]
            rows = [torch.randn(*shape, 5) for shape in shapes]
            rank = collective.world().rank
            all_rows, all_ids = gather_rows(rows[rank], ids[rank], "dp")
            torch.testing.assert_close(all_ids, torch.cat([i.flatten() for i in ids]), rtol=0, atol=0)
            torch.testing.assert_close(
                all_rows,
                torch.cat([r.view(-1, 5) for r in rows if r.numel()] or [rows[0].view(0, 5)]),
                rtol=0,
                atol=0,
            )


def test_two_ranks_with_different_numbers_of_ids(ranks: ForkServer) -> None:
    ranks.check(2, on_two_ranks)


@pytest.mark.parametrize("transposed", [False, True])
def test_alone_it_flattens(transposed: bool) -> None:
    rows, ids = torch.randn(2, 3, 4), torch.randint(9, (2, 3))
    rows, ids = (rows.transpose(0, 1), ids.T) if transposed else (rows, ids)
    all_rows, all_ids = gather_rows(rows, ids, "dp")
    torch.testing.assert_close(all_rows, rows.reshape(6, 4))
    torch.testing.assert_close(all_ids, ids.reshape(6))


def test_the_fake_kernel_leaves_the_number_of_rows_open() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()):
        rows, ids = gather_rows(torch.empty(2, 3, 4), torch.empty(2, 3, dtype=torch.int32), "dp")
    assert isinstance(rows.shape[0], torch.SymInt)
    assert rows.shape[0].node.expr == ids.shape[0].node.expr
    assert (rows.shape[1], rows.dtype, ids.ndim, ids.dtype) == (4, torch.float32, 1, torch.int32)
