"""Members of archives; corrupt archives; equal contents give equal files."""

# SPDX-License-Identifier: Apache-2.0
import zipfile
from pathlib import Path

import pytest

from argosy.engine.data.corpora.archives import lines, member, members, write_tar, write_zip
from argosy.engine.errors import CorruptFileError

CONTENTS = {"b/1.txt": b"one\ntwo \n", "a/2.txt": b"\xe9", "a/3.bin": b"\0"}


@pytest.mark.parametrize("name", ["x.tgz", "x.tar", "x.zip"])
def test_members_by_pattern(tmp_path: Path, name: str) -> None:
    write = write_zip if name.endswith("zip") else write_tar
    paths = [tmp_path / name, tmp_path / f"again-{name}"]
    for path in paths:
        write(path, CONTENTS)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(members(paths[0], r".*\.txt")) == [("a/2.txt", b"\xe9"), ("b/1.txt", b"one\ntwo \n")]
    assert lines(paths[0], "b/1.txt") == ["one", "two"]
    assert lines(paths[0], "a/2.txt", "latin-1") == ["é"]
    with pytest.raises(CorruptFileError, match="0 files like c"):
        member(paths[0], "c")
    with pytest.raises(CorruptFileError, match="utf-8"):
        lines(paths[0], "a/2.txt")


@pytest.mark.parametrize("name", ["x.tgz", "x.tar"])
def test_truncated_archives_raise(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_tar(path, {"a": bytes(range(256)) * 20})
    path.write_bytes(path.read_bytes()[: 600 if name == "x.tar" else 60])
    with pytest.raises(CorruptFileError, match="replace it"):
        list(members(path, "a"))
    path.write_bytes(b"no archive")
    with pytest.raises(CorruptFileError, match="replace it"):
        list(members(path, "a"))


def test_a_zip_archive_with_a_changed_member_raises(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"contents")
    path.write_bytes(path.read_bytes().replace(b"contents", b"c0ntents"))
    with pytest.raises(CorruptFileError, match="replace it"):
        list(members(path, "a"))
