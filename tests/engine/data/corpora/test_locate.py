"""Source: files of the caller, of the cache with their checksums, and generated ones."""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import logging
from pathlib import Path

import pytest

from argosy.engine.data.corpora import sources
from argosy.engine.data.corpora.locate import Source
from argosy.engine.errors import ConfigError, CorruptFileError, DataError

TEXT = b"original"
MD5 = hashlib.md5(TEXT).hexdigest()


def draw(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"generated")


SOURCE = Source("letters", {"a.txt": MD5}, "letters", draw, subfolder="texts")


def test_generated_files_replace_missing_ones_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="argosy"):
        assert SOURCE.file().read_bytes() == b"generated"
    assert "a.txt" in caplog.text
    assert SOURCE.folder() == tmp_path / "dataset" / "letters-drawn"


def test_files_of_the_cache_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    path = tmp_path / "dataset" / "texts" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    assert SOURCE.file() == path
    path.write_bytes(b"altered")
    with pytest.raises(CorruptFileError, match=MD5):
        SOURCE.file()


def test_a_given_file_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(b"mine")
    assert SOURCE.file(path, download=False) == path
    with pytest.raises(DataError, match="there is no file"):
        SOURCE.file(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="download=False"):
        SOURCE.file(download=False)


def test_the_table_has_an_md5_for_every_file() -> None:
    table = [value for value in vars(sources).values() if isinstance(value, Source)]
    assert len({source.name for source in table}) == len(table) == 12
    assert all(len(md5) == 32 and int(md5, 16) for source in table for md5 in source.checksums.values())
