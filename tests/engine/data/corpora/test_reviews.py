"""IMDB and movie_reviews in their original formats."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.data.corpora import reviews
from argosy.engine.data.corpora.archives import write_tar, write_zip
from argosy.engine.errors import CorruptFileError


def test_imdb_words_have_no_case_and_no_punctuation(tmp_path: Path) -> None:
    path = tmp_path / "imdb.tar.gz"
    texts = {
        "aclImdb/train/neg/0_1.txt": b"Bad, bad film!\n",
        "aclImdb/train/pos/0_9.txt": b"A good film.",
        "aclImdb/train/unsup/0_0.txt": b"not read",
        "aclImdb/test/pos/0_8.txt": b"good",
    }
    write_tar(path, texts)
    words = reviews.imdb_dict(path, r"aclImdb/(train|test)/(pos|neg)/.*\.txt$", 1)
    assert words == {b"bad": 0, b"film": 1, b"good": 2, "<unk>": 3}
    assert list(reviews.imdb_samples(path, "train", words)) == [([3, 2, 1], 0), ([0, 0, 1], 1)]
    assert list(reviews.imdb_samples(path, "test", words)) == [([2], 0)]


def test_movie_reviews_alternate(tmp_path: Path) -> None:
    path = tmp_path / "reviews.zip"
    texts = {
        "movie_reviews/pos/cv1.txt": b"It's good .",
        "movie_reviews/neg/cv1.txt": b"bad",
        "movie_reviews/README": b"",
    }
    write_zip(path, texts)
    samples = reviews.movie_reviews(path)
    assert samples == [(["bad"], 0), (["it", "'", "s", "good", "."], 1)]
    assert reviews.movie_review_dict(samples) == {
        w: i for i, w in enumerate(["bad", "it", "'", "s", "good", "."])
    }
    write_zip(path, {"movie_reviews/pos/cv1.txt": b"good"})
    with pytest.raises(CorruptFileError, match="0 negative and 1 positive"):
        reviews.movie_reviews(path)
