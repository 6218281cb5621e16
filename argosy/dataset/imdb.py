"""IMDB: readers of (word numbers, 0 for a positive review or 1).

The archive is looked for in `<cache>/dataset/imdb`; if it is missing, generated reviews are used. The words of the
dictionary are bytes, as in Paddle; "<unk>" is a str.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import reviews
from argosy.engine.data.corpora.sources import IMDB

__all__ = ["build_dict", "test", "tokenize", "train", "word_dict"]

_ALL = r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"


def tokenize(pattern: str | re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words of each review whose name in the archive matches."""
    return reviews.imdb_documents(IMDB.file(), _text(pattern))


def build_dict(pattern: str | re.Pattern[str], cutoff: int) -> dict[bytes | str, int]:
    """The words of these reviews that occur more than `cutoff` times, numbered by frequency."""
    return reviews.imdb_dict(IMDB.file(), _text(pattern), cutoff)


def word_dict(cutoff: int = 150) -> dict[bytes | str, int]:
    """The dictionary of all reviews."""
    return build_dict(_ALL, cutoff)


def train(word_idx: dict[bytes | str, int]) -> Callable[[], Iterator[Any]]:
    """The reviews to train, the positive ones first: shuffle them."""
    return _reader("train", word_idx)


def test(word_idx: dict[bytes | str, int]) -> Callable[[], Iterator[Any]]:
    """The reviews to test, the positive ones first."""
    return _reader("test", word_idx)


def _reader(split: str, word_idx: dict[bytes | str, int]) -> Callable[[], Iterator[Any]]:
    samples = list(reviews.imdb_samples(IMDB.file(), split, word_idx))
    return lambda: iter(samples)


def _text(pattern: str | re.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else pattern.pattern
