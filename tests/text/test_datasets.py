"""argosy.text: the data sets as arrays, from the cache or from given files."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy import io, text
from argosy.engine.data.corpora import sources
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.text import datasets


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One cache for this file, so that each data set is generated once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARGOSY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_names_are_in_both_places() -> None:
    assert text.Imdb is datasets.Imdb is text.datasets.Imdb
    with pytest.raises(UnknownNameError, match="Imbd"):
        _ = text.Imbd


def test_texts() -> None:
    reviews = text.Imdb(mode="test", cutoff=50)
    words, label = reviews[0]
    assert (words.ndim, label.tolist(), len(reviews)) == (1, [0], 400)
    assert reviews.word_idx["<unk>"] == len(reviews.word_idx) - 1
    grams = text.Imikolov(data_type="ngram", window_size=4, mode="test", min_word_freq=20)
    assert (len(grams[0]), grams[0][0].shape) == (4, ())
    sequences = text.Imikolov(data_type="SEQ", min_word_freq=20)
    np.testing.assert_array_equal(sequences[3][0][1:], sequences[3][1][:-1])
    roles = text.Conll05st()
    assert [part.shape for part in roles[0]] == [roles[0][0].shape] * 9
    assert roles.get_dict()[2]["O"] == 8
    assert Path(roles.get_embedding()).name == "emb"


def test_translations() -> None:
    wmt14 = text.WMT14(mode="gen", dict_size=50)
    assert (len(wmt14), [part.ndim for part in wmt14[0]]) == (60, [1, 1, 1])
    assert wmt14.get_dict()[0]["<unk>"] == 2
    assert wmt14.get_dict(reverse=True)[1][0] == "<s>"
    wmt16 = text.WMT16(mode="val", src_dict_size=20, trg_dict_size=30, lang="de")
    assert (len(wmt16.get_dict("de")), len(wmt16.get_dict("en", reverse=True))) == (20, 30)
    with pytest.raises(ConfigError, match="-1 words"):
        text.WMT14()


def test_tables_that_a_loader_batches() -> None:
    houses = text.UCIHousing(mode="test")
    features, prices = next(iter(io.DataLoader(houses, batch_size=8, return_list=True)))
    assert (tuple(features.shape), tuple(prices.shape)) == ((8, 13), (8, 1))
    ratings = text.Movielens(mode="test", rand_seed=3)
    assert [field.ndim for field in ratings[0]] == [1] * 8
    assert len(ratings) + len(text.Movielens(mode="train", rand_seed=3)) == 3000


def test_given_files_and_unknown_modes(tmp_path: Path) -> None:
    path = tmp_path / "mine.data"
    path.write_text(sources.UCI_HOUSING.file().read_text()[: 14 * 9 * 10 + 10])
    assert len(text.UCIHousing(str(path), mode="train")) == 8
    with pytest.raises(ConfigError, match="download=False"):
        text.Imdb(download=False)
    with pytest.raises(UnknownNameError, match="mode='dev'"):
        text.Imdb(mode="dev")
    with pytest.raises(UnknownNameError, match="data_type='BIGRAM'"):
        text.Imikolov(data_type="bigram")
