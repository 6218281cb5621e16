"""lookup_known_rows: rows by sorted ids; ids without a row have the first values of their table."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.errors import ConfigError
from argosy.engine.ops.lookup_known_rows import lookup_known_rows
from argosy.engine.ps.table.table_spec import RowInit, first_values

INIT = RowInit("normal", 0.5, 2.0, 3)
ENDS = torch.iinfo(torch.int64)
IDS = torch.tensor([ENDS.min, -3, 5, 70, ENDS.max])
ROWS = torch.arange(10.0).view(5, 2)


def looked_up(ids: torch.Tensor, known: torch.Tensor = IDS, rows: torch.Tensor = ROWS) -> torch.Tensor:
    return lookup_known_rows(ids, known, rows, INIT.kind, INIT.a, INIT.b, INIT.seed, "table")


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_known_and_unknown_ids(kind: torch.dtype) -> None:
    ids = torch.tensor([[5, 6], [-3, 71]], dtype=kind)
    first = first_values(INIT, "table", torch.tensor([6, 71]), 2)
    wanted = torch.stack([torch.stack([ROWS[2], first[0]]), torch.stack([ROWS[1], first[1]])])
    assert torch.equal(looked_up(ids), wanted)


def test_the_ends_of_int64_are_ids_like_others() -> None:
    assert torch.equal(looked_up(IDS), ROWS)
    shorter = looked_up(IDS[[0, 4]], IDS[1:4], ROWS[1:4])
    assert torch.equal(shorter, first_values(INIT, "table", IDS[[0, 4]], 2))


def test_no_rows_and_no_ids() -> None:
    assert torch.equal(looked_up(IDS, IDS[:0], ROWS[:0]), first_values(INIT, "table", IDS, 2))
    assert looked_up(IDS[:0].view(0, 3)).shape == (0, 3, 2)


def test_a_fake_has_the_shape_of_the_value() -> None:
    ids = IDS.view(1, 5)
    with FakeTensorMode() as mode:
        fake = looked_up(*map(mode.from_tensor, (ids, IDS, ROWS)))
    real = looked_up(ids)
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


def test_ids_and_rows_that_do_not_belong_together_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"5 ids \(int64\[5\]\) and rows float32\[4, 2\]"):
        looked_up(IDS, IDS, ROWS[:4])
