"""MovieLens: users, films, and the split of ratings, which is that of NumPy's seeded generator."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest

from argosy.engine.data.corpora.archives import write_zip
from argosy.engine.data.corpora.movielens import MovieLens
from argosy.engine.errors import CorruptFileError


def test_samples_of_a_small_archive(tmp_path: Path) -> None:
    path = tmp_path / "ml-1m.zip"
    ratings = [f"{1 + i % 2}::7::{1 + i % 5}::0\n" for i in range(100)]
    contents = {
        "ml-1m/movies.dat": "7::La Cité des la (1995)::Comedy|War\n".encode("latin-1"),
        "ml-1m/users.dat": b"1::F::1::10::48067\n2::M::56::16::70072\n",
        "ml-1m/ratings.dat": "".join(ratings).encode(),
    }
    write_zip(path, contents)
    data = MovieLens(path)
    assert data.title_words == {"la": 0, "cité": 1, "des": 2}
    assert data.categories == {"Comedy": 0, "War": 1}
    assert data.users[2].value() == [2, 0, 6, 16]
    assert data.movies[7].value() == [7, [0, 1], [0, 1, 2, 0]]
    is_test = np.random.RandomState(0).random_sample(100) < 0.1
    test, train = list(data.samples(True)), list(data.samples(False))
    assert [sample[-1] for sample in test] == [[(1 + i % 5) * 2.0 - 5] for i in np.flatnonzero(is_test)]
    assert (len(train), train[0]) == (100 - is_test.sum(), [1, 1, 0, 10, 7, [0, 1], [0, 1, 2, 0], [-3.0]])
    write_zip(path, contents | {"ml-1m/users.dat": b"1::F\n"})
    with pytest.raises(CorruptFileError, match="not 5 fields"):
        MovieLens(path)
