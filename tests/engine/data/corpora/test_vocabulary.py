"""Dictionaries by frequency."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.corpora.vocabulary import by_frequency, most_frequent

TEXT = ["d", "c", "b", "b", "a", "a", "a", "c"]


def test_words_above_the_cutoff_with_ties_in_alphabetical_order() -> None:
    assert by_frequency(TEXT, 1) == {"a": 0, "b": 1, "c": 2}


def test_the_most_frequent_words_after_the_special_ones() -> None:
    assert most_frequent(TEXT, 4, ("<s>", "<e>")) == {"<s>": 0, "<e>": 1, "a": 2, "c": 3}
    assert most_frequent(TEXT, 1, ("<s>", "<e>")) == {"<s>": 0}
