"""First values of rows: the right distributions, and a function of seed, table, id and column alone."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.ps.table.table_spec import RowInit, first_values

IDS = torch.arange(-20_000, 20_000)
FIXED = [[0.76075357, 0.73330194], [0.65457433, 0.84707278], [0.34115702, 0.66726679]]
DISTRIBUTIONS = {  # row init -> name and arguments of scipy's distribution
    RowInit("uniform", -0.5, 1.5, seed=3): ("uniform", (-0.5, 2.0)),
    RowInit("normal", 1.0, 0.2, seed=3): ("norm", (1.0, 0.2)),
    RowInit("truncated_normal", 1.0, 0.2, seed=3): ("truncnorm", (-2, 2, 1.0, 0.2)),
}


@pytest.mark.parametrize("init", DISTRIBUTIONS, ids=lambda init: init.kind)
def test_the_values_have_their_distribution(init: RowInit) -> None:
    from scipy import stats  # two seconds, which each worker would spend on collection

    values = first_values(init, "emb", IDS, 8)
    assert values.dtype == torch.float32
    name, arguments = DISTRIBUTIONS[init]
    result = stats.kstest(values.flatten().double().numpy(), name, args=arguments)
    assert result.pvalue > 0.001


def test_truncated_values_stay_within_two_deviations() -> None:
    values = first_values(RowInit("truncated_normal", 1.0, 0.2), "emb", IDS, 8)
    assert (values - 1.0).abs().max() <= 0.4 + 1e-6


def test_rows_columns_tables_and_seeds_are_unrelated() -> None:
    init = RowInit("normal", 0.0, 1.0, seed=1)
    drawn = [
        first_values(init, "emb", IDS, 4),
        first_values(init, "other", IDS, 4),
        first_values(RowInit("normal", 0.0, 1.0, seed=2), "emb", IDS, 4),
        first_values(init, "emb", IDS + 1, 4),  # the next row
    ]
    between = np.corrcoef(torch.cat(drawn, 1).T.numpy())
    assert np.abs(between - np.eye(16)).max() < 0.03


def test_a_row_is_the_same_alone_and_among_others_in_any_order() -> None:
    init = RowInit("uniform", -1.0, 1.0, seed=7)
    together = first_values(init, "emb", IDS, 3)
    some = torch.randperm(len(IDS))[:100]
    assert torch.equal(first_values(init, "emb", IDS[some], 3), together[some])
    assert torch.equal(first_values(init, "emb", IDS[:1], 2), together[:1, :2])


def test_the_values_are_those_of_all_time() -> None:
    """A change of these numbers would change what servers of two versions make of one table."""
    actual = first_values(RowInit("uniform", 0.0, 1.0, seed=1), "emb", torch.tensor([0, -1, 2**62]), 2)
    torch.testing.assert_close(actual, torch.tensor(FIXED))


def test_constants_are_constant() -> None:
    assert first_values(RowInit("constant", 0.25), "emb", IDS[:3], 2).tolist() == [[0.25, 0.25]] * 3


def test_no_ids_give_no_rows() -> None:
    assert first_values(RowInit("normal", 0.0, 1.0), "emb", IDS[:0], 5).shape == (0, 5)
