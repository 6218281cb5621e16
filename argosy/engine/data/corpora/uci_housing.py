"""UCI Housing: a text file with 13 features and the price in each row of 14 numbers."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from argosy.engine.errors import CorruptFileError

FEATURES = ("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT")


def load(path: Path, ratio: float = 0.8) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(train, test): the first `ratio` of the rows, and the rest; features less their mean, divided by their range."""
    try:
        numbers = np.array(path.read_text().split(), dtype=np.float64)
        rows = numbers.reshape(-1, len(FEATURES) + 1)
    except ValueError as e:
        raise CorruptFileError(
            f"{path} is not rows of {len(FEATURES) + 1} numbers ({e}); use the original"
        ) from e
    features = rows[:, :-1]
    spread = features.max(axis=0) - features.min(axis=0)
    rows[:, :-1] = (features - features.mean(axis=0)) / spread
    offset = int(len(rows) * ratio)
    return rows[:offset], rows[offset:]
