"""UCI Housing: normalised features, and the split by rows."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest

from argosy.engine.data.corpora.uci_housing import load
from argosy.engine.errors import CorruptFileError


def test_features_are_normalised_and_prices_are_not(tmp_path: Path) -> None:
    path = tmp_path / "housing.data"
    rows = np.random.default_rng(0).uniform(0, 50, (10, 14))
    path.write_text("".join(" " + "  ".join(map(repr, row)) + "\n" for row in rows.tolist()))
    train, test = load(path)
    spread = rows.max(0) - rows.min(0)
    expected = np.column_stack([((rows - rows.mean(0)) / spread)[:, :13], rows[:, 13]])
    np.testing.assert_allclose(train, expected[:8])
    np.testing.assert_allclose(test, expected[8:])
    path.write_text("1 2 3")
    with pytest.raises(CorruptFileError, match="rows of 14 numbers"):
        load(path)
