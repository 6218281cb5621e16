"""MovieLens 1M: users, films and ratings in three files of one zip archive, fields separated by "::".

ml-1m/movies.dat     1::Toy Story (1995)::Animation|Children's|Comedy
ml-1m/users.dat      1::F::1::10::48067
ml-1m/ratings.dat    1::1193::5::978300760
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from argosy.engine.data.corpora.archives import lines
from argosy.engine.errors import CorruptFileError

AGES = [1, 18, 25, 35, 45, 50, 56]
"""The first year of each group of ages."""


@dataclass(frozen=True)
class UserInfo:
    """A user: `age` is the number of the group of ages."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """[number, 0 for male or 1, group of ages, job]."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


@dataclass(frozen=True)
class MovieInfo:
    """A film, its genres and its title without the year, also as numbers."""

    index: int
    categories: tuple[str, ...]
    title: str
    category_ids: list[int]
    title_ids: list[int]

    def value(self) -> list[Any]:
        """[number, numbers of its genres, numbers of the words of its title]."""
        return [self.index, self.category_ids, self.title_ids]


class MovieLens:
    """All users and films of the archive; the ratings are read by `samples`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users: dict[int, UserInfo] = {}
        self.movies: dict[int, MovieInfo] = {}
        self.categories: dict[str, int] = {}
        self.title_words: dict[str, int] = {}
        """Numbered in the order of first occurrence (in Paddle: of a set, another in each process)."""
        for number, gender, age, job, _ in self._fields("users", 5):
            self.users[int(number)] = UserInfo(int(number), gender == "M", AGES.index(int(age)), int(job))
        for number, title, genres in self._fields("movies", 3):
            name, categories = re.sub(r"\(\d+\)$", "", title), genres.split("|")
            words = name.lower().split()
            for known, new in ((self.categories, categories), (self.title_words, words)):
                for word in new:
                    known.setdefault(word, len(known))
            self.movies[int(number)] = MovieInfo(
                int(number),
                tuple(categories),
                name,
                [self.categories[c] for c in categories],
                [self.title_words[w] for w in words],
            )

    def samples(self, is_test: bool, test_ratio: float = 0.1, seed: int = 0) -> Iterator[list[Any]]:
        """[*user, *film, [rating from -3 to 5]]; each rating is a test sample with probability `test_ratio`."""
        chance = np.random.RandomState(seed)
        for user, movie, rating, _ in self._fields("ratings", 4):
            if (chance.random_sample() < test_ratio) == is_test:
                known_user, film = self.users[int(user)], self.movies[int(movie)]
                yield [*known_user.value(), *film.value(), [float(rating) * 2 - 5.0]]

    def _fields(self, name: str, count: int) -> Iterator[list[str]]:
        for line in lines(self.path, rf"ml-1m/{name}\.dat", "latin-1"):
            fields = line.split("::")
            if len(fields) != count:
                raise CorruptFileError(
                    f"{self.path}: {name}.dat has the line {line!r}, not {count} fields separated by '::'"
                )
            yield fields
