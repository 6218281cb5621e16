"""WMT14 and WMT16: pairs of sentences as word numbers."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.data.corpora import translation
from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.errors import ConfigError, UnknownNameError


def test_wmt14_with_the_dictionaries_of_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "wmt14.tgz"
    long = " ".join(["a"] * 79)
    contents = {
        "wmt14/src.dict": b"<s>\n<e>\n<unk>\na\nb\nc\n",
        "wmt14/trg.dict": b"<s>\n<e>\n<unk>\nx\ny\n",
        "wmt14/train/train": f"a c b\ty x\nno tab\n{long}\tx\n".encode(),
    }
    write_tar(path, contents)
    assert translation.wmt14_dicts(path, 4)[1] == {"<s>": 0, "<e>": 1, "<unk>": 2, "x": 3}
    assert list(translation.wmt14_samples(path, "train", 5)) == [([0, 3, 2, 4, 1], [0, 4, 3], [4, 3, 1])]
    with pytest.raises(ConfigError, match="a dictionary of -1 words"):
        translation.wmt14_dicts(path, -1)


def test_wmt16_dictionaries_are_the_most_frequent_training_words(tmp_path: Path) -> None:
    path = tmp_path / "wmt16.tar.gz"
    write_tar(path, {"wmt16/train": b"a b b\tx\nb\ty y\n", "wmt16/val": b"a q\ty x\n"})
    english, german = (translation.wmt16_dict(path, language, 5) for language in ("en", "de"))
    assert english == {"<s>": 0, "<e>": 1, "<unk>": 2, "b": 3, "a": 4}
    assert german == {"<s>": 0, "<e>": 1, "<unk>": 2, "y": 3, "x": 4}
    assert list(translation.wmt16_samples(path, "val", english, german, "en")) == [
        ([0, 4, 2, 1], [0, 3, 4], [3, 4, 1])
    ]
    assert list(translation.wmt16_samples(path, "val", german, english, "de")) == [
        ([0, 3, 4, 1], [0, 4, 2], [4, 2, 1])
    ]
    with pytest.raises(UnknownNameError, match="'fr'"):
        translation.wmt16_dict(path, "fr", 5)
