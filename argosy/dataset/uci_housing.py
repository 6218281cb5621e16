"""UCI Housing: readers of (13 normalised features, [price]).

The file is looked for in `<cache>/dataset/uci_housing`; if it is missing, generated houses are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import uci_housing
from argosy.engine.data.corpora.sources import UCI_HOUSING

__all__ = ["feature_names", "predict_reader", "test", "train"]

feature_names = list(uci_housing.FEATURES)


def train() -> Callable[[], Iterator[Any]]:
    """The first four fifths of the rows."""
    return _reader(0)


def test() -> Callable[[], Iterator[Any]]:
    """The last fifth of the rows."""
    return _reader(1)


def predict_reader() -> tuple[Any]:
    """The features of one test row, to try a model."""
    return (uci_housing.load(UCI_HOUSING.file())[1][0, :-1],)


def _reader(part: int) -> Callable[[], Iterator[Any]]:
    rows = uci_housing.load(UCI_HOUSING.file())[part]
    return lambda: ((row[:-1], row[-1:]) for row in rows)
