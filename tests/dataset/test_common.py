"""argosy.dataset.common: downloads with a checksum, files of a cluster."""

# SPDX-License-Identifier: Apache-2.0
import hashlib
from pathlib import Path

import pytest

from argosy.dataset import common
from argosy.engine.errors import ConfigError, DataError


def test_a_download_is_checked_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    source = tmp_path / "data.bin"
    source.write_bytes(b"contents")
    md5 = hashlib.md5(b"contents").hexdigest()
    path = common.download(source.as_uri(), "mine", md5)
    assert path == str(tmp_path / "home" / "mine" / "data.bin")
    assert common.md5file(path) == md5
    source.unlink()
    assert common.download(source.as_uri(), "mine", md5) == path
    with pytest.raises(DataError, match="cannot download"):
        common.download(source.as_uri(), "mine", md5, save_name="other.bin")
    source.write_bytes(b"altered")
    with pytest.raises(DataError, match=f"not {md5}"):
        common.download(source.as_uri(), "mine", md5, save_name="other.bin")
    assert [p.name for p in (tmp_path / "home" / "mine").iterdir()] == ["data.bin"]


def test_the_files_of_a_split_are_divided_among_trainers(tmp_path: Path) -> None:
    suffix = str(tmp_path / "part-%03d.pickle")
    common.split(lambda: iter(range(10)), 3, suffix)
    readers = [common.cluster_files_reader(str(tmp_path / "part-*"), 2, i) for i in range(2)]
    assert [list(reader()) for reader in readers] == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9]]
    with pytest.raises(ConfigError, match="no place for a number"):
        common.split(lambda: iter([1]), 1, "x.pickle")
    with pytest.raises(ConfigError, match="trainer_id=2"):
        common.cluster_files_reader("*", 2, 2)
