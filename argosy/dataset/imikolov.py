"""The Penn Treebank: readers of n-grams, or of (sequence, next words).

The archive is looked for in `<cache>/dataset/imikolov`; if it is missing, generated sentences are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import imikolov
from argosy.engine.data.corpora.sources import IMIKOLOV

__all__ = ["DataType", "build_dict", "test", "train"]


class DataType:
    """What a sample is: NGRAM, n words; SEQ, a sentence and its next words."""

    NGRAM = 1
    SEQ = 2


def build_dict(min_word_freq: int = 50) -> dict[str, int]:
    """The words that occur more than `min_word_freq` times, numbered by frequency; "<unk>" is the last."""
    return imikolov.word_dict(IMIKOLOV.file(), min_word_freq)


def train(word_idx: dict[str, int], n: int, data_type: int = DataType.NGRAM) -> Callable[[], Iterator[Any]]:
    """The training text."""
    return _reader("train", word_idx, n, data_type)


def test(word_idx: dict[str, int], n: int, data_type: int = DataType.NGRAM) -> Callable[[], Iterator[Any]]:
    """The validation text, as in Paddle."""
    return _reader("valid", word_idx, n, data_type)


def _reader(split: str, word_idx: dict[str, int], n: int, data_type: int) -> Callable[[], Iterator[Any]]:
    kind = {DataType.NGRAM: "NGRAM", DataType.SEQ: "SEQ"}[data_type]
    return lambda: imikolov.samples(IMIKOLOV.file(), split, word_idx, n, kind)
