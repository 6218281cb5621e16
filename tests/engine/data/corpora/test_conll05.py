"""CoNLL-2005: brackets as tags, one sample for each verb."""

# SPDX-License-Identifier: Apache-2.0
import gzip
from pathlib import Path

import pytest

from argosy.engine.data.corpora import conll05
from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.errors import CorruptFileError, DataError

WORDS = "The\ncat\nsat\nand\nslept\n\nYes\n\n"
PROPS = "- (A0* *\n- *) (A0*)\nsit (V*) *\n- * *\nsleep * (V*)\n\n-\n\n"


def write(path: Path, words: str = WORDS, props: str = PROPS) -> None:
    root = "conll05st-release/test.wsj"
    contents = {
        f"{root}/words/test.wsj.words.gz": gzip.compress(words.encode()),
        f"{root}/props/test.wsj.props.gz": gzip.compress(props.encode()),
    }
    write_tar(path, contents)


def test_a_proposition_for_each_verb(tmp_path: Path) -> None:
    path = tmp_path / "tests.tar.gz"
    write(path)
    first, second = conll05.propositions(path)
    assert (first.verb, first.tags) == ("sit", ["B-A0", "I-A0", "B-V", "O", "O"])
    assert (second.verb, second.tags) == ("sleep", ["O", "B-A0", "O", "O", "B-V"])
    assert second.words == ["The", "cat", "sat", "and", "slept"]
    words = {word: number for number, word in enumerate(["<unk>", "bos", "eos", "The", "cat", "sat", "and"])}
    tags = {"B-A0": 0, "I-A0": 1, "B-V": 2, "I-V": 3, "O": 4}
    sample = second.sample(words, {"sit": 0, "sleep": 1}, tags)
    assert sample[0] == [3, 4, 5, 6, 0]
    assert [part[0] for part in sample[1:6]] == [5, 6, 0, 2, 2]
    assert sample[6:] == ([1] * 5, [0, 0, 1, 1, 1], [4, 0, 4, 4, 2])
    beginning = conll05.Proposition(["sat", "cat"], "sit", ["B-V", "O"]).sample(words, {"sit": 0}, tags)
    assert [part[0] for part in beginning[1:6]] == [1, 1, 5, 4, 2]


def test_dictionaries_and_unknown_labels(tmp_path: Path) -> None:
    path = tmp_path / "targetDict.txt"
    path.write_text("B-A1\nI-A1\nB-A0\nI-A0\nO\n")
    expected = {"B-A1": 0, "I-A1": 1, "B-A0": 2, "I-A0": 3, "O": 4}
    assert conll05.load_label_dict(path) == expected == conll05.load_dict(path)
    with pytest.raises(DataError, match="lack the verb 'go'"):
        conll05.Proposition(["go"], "go", ["B-V"]).sample({}, {}, {"B-V": 0})
    write(tmp_path / "x.tar.gz", "a\nb\n\n", "go A0\n\n")
    with pytest.raises(CorruptFileError, match="2 lines of words and 1 of roles"):
        list(conll05.propositions(tmp_path / "x.tar.gz"))
    write(tmp_path / "x.tar.gz", "a\n\n", "go A0\n\n")
    with pytest.raises(CorruptFileError, match="label 'A0'"):
        list(conll05.propositions(tmp_path / "x.tar.gz"))
