"""Dictionaries of words: word to number, by frequency."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Word = TypeVar("Word", str, bytes)


def by_frequency(words: Iterable[Word], cutoff: int) -> dict[Word, int]:
    """The words that occur more than `cutoff` times, the most frequent first, ties in alphabetical order."""
    counts = Counter(words)
    frequent = sorted((word for word in counts if counts[word] > cutoff), key=lambda w: (-counts[w], w))
    return {word: number for number, word in enumerate(frequent)}


def most_frequent(words: Iterable[str], size: int, specials: tuple[str, ...]) -> dict[str, int]:
    """The special words, then the most frequent ones, `size` in all; ties in the order of first occurrence."""
    ranked = [word for word, _ in Counter(words).most_common()]
    return {word: number for number, word in enumerate([*specials, *ranked][:size])}
