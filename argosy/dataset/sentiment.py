"""NLTK's film reviews: readers of (word numbers, 0 for a negative review or 1).

The archive is looked for in `<cache>/dataset/sentiment`; if it is missing, generated reviews are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import reviews
from argosy.engine.data.corpora.sources import MOVIE_REVIEWS

__all__ = ["get_word_dict", "test", "train"]

_TRAIN_SHARE = 0.8  # 1,600 of the 2,000 original reviews


def get_word_dict() -> list[tuple[str, int]]:
    """(word, number), the most frequent first."""
    return list(reviews.movie_review_dict(reviews.movie_reviews(MOVIE_REVIEWS.file())).items())


def train() -> Callable[[], Iterator[Any]]:
    """The first four fifths of the reviews."""
    samples = _samples()
    return lambda: iter(samples[: round(len(samples) * _TRAIN_SHARE)])


def test() -> Callable[[], Iterator[Any]]:
    """The last fifth of the reviews."""
    samples = _samples()
    return lambda: iter(samples[round(len(samples) * _TRAIN_SHARE) :])


def _samples() -> list[tuple[list[int], int]]:
    texts = reviews.movie_reviews(MOVIE_REVIEWS.file())
    numbers = reviews.movie_review_dict(texts)
    return [([numbers[word] for word in words], label) for words, label in texts]
