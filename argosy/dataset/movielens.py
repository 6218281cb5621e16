"""MovieLens 1M: readers of [user, gender, age, job, film, genres, words of the title, [rating]].

The archive is looked for in `<cache>/dataset/movielens`; if it is missing, generated ratings are used.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from argosy.engine.data.corpora.movielens import AGES as age_table
from argosy.engine.data.corpora.movielens import MovieInfo, MovieLens, UserInfo
from argosy.engine.data.corpora.sources import MOVIELENS

__all__ = [
    "MovieInfo",
    "UserInfo",
    "age_table",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]


def train(rand_seed: int = 0, test_ratio: float = 0.1) -> Callable[[], Iterator[Any]]:
    """The ratings to train."""
    return lambda: _data().samples(False, test_ratio, rand_seed)


def test(rand_seed: int = 0, test_ratio: float = 0.1) -> Callable[[], Iterator[Any]]:
    """The ratings to test."""
    return lambda: _data().samples(True, test_ratio, rand_seed)


def get_movie_title_dict() -> dict[str, int]:
    """The words of the titles, numbered."""
    return _data().title_words


def movie_categories() -> dict[str, int]:
    """The genres, numbered."""
    return _data().categories


def movie_info() -> dict[int, MovieInfo]:
    """The films by number."""
    return _data().movies


def user_info() -> dict[int, UserInfo]:
    """The users by number."""
    return _data().users


def max_movie_id() -> int:
    """The greatest number of a film."""
    return max(_data().movies)


def max_user_id() -> int:
    """The greatest number of a user."""
    return max(_data().users)


def max_job_id() -> int:
    """The greatest number of a job."""
    return max(user.job_id for user in _data().users.values())


def _data() -> MovieLens:
    return _load(MOVIELENS.file())


@functools.lru_cache(maxsize=1)  # all functions of this module share what they parse
def _load(path: Path) -> MovieLens:
    return MovieLens(path)
