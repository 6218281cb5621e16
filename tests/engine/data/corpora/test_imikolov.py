"""The Penn Treebank as n-grams and as sequences."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.data.corpora import imikolov
from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.errors import ConfigError


def test_n_grams_and_sequences(tmp_path: Path) -> None:
    path = tmp_path / "simple-examples.tgz"
    texts = {"train": b" a b <unk> \n a a \n", "valid": b" b c \n", "test": b" c \n"}
    write_tar(path, {f"./simple-examples/data/ptb.{name}.txt": text for name, text in texts.items()})
    words = imikolov.word_dict(path, 1)
    assert words == {"<e>": 0, "<s>": 1, "a": 2, "b": 3, "<unk>": 4}
    trigrams = [(1, 2, 3), (2, 3, 4), (3, 4, 0), (1, 2, 2), (2, 2, 0)]
    assert list(imikolov.samples(path, "train", words, 3, "NGRAM")) == trigrams
    assert list(imikolov.samples(path, "test", words, 4, "NGRAM")) == []
    assert list(imikolov.samples(path, "train", words, -1, "SEQ")) == [
        ([1, 2, 3, 4], [2, 3, 4, 0]),
        ([1, 2, 2], [2, 2, 0]),
    ]
    assert list(imikolov.samples(path, "train", words, 3, "SEQ")) == [([1, 2, 2], [2, 2, 0])]
    with pytest.raises(ConfigError, match="an n-gram of -1 words"):
        next(imikolov.samples(path, "train", words, -1, "NGRAM"))
