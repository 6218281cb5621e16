"""LocalFS and HDFSClient over real drivers of fsspec: local files and memory."""

# SPDX-License-Identifier: Apache-2.0
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from argosy.distributed import fleet
from argosy.distributed.fleet.utils import HDFSClient, LocalFS
from argosy.distributed.fleet.utils.fs import (
    FS,
    ExecuteError,
    FSFileExistsError,
    FSFileNotExistsError,
    FSTimeOut,
)
from argosy.engine.errors import ArgosyError, ConfigError
from argosy.fluid.incubate.fleet.utils import hdfs


@pytest.fixture(params=["local", "memory", "file URL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FS, str]]:
    """A file system and an empty directory on it."""
    if request.param == "local":
        yield LocalFS(), str(tmp_path / "root")
    elif request.param == "memory":
        client = HDFSClient(None, {"fs.default.name": "memory://"}, time_out=0)
        yield client, "/root"
        client.delete("/root")
    else:
        yield HDFSClient("/opt/hadoop", {"fs.default.name": f"file://{tmp_path}"}), str(tmp_path / "root")


def test_files_and_directories(place: tuple[FS, str]) -> None:
    fs, root = place
    assert not fs.is_exist(root)
    assert fs.ls_dir(root) == ([], [])
    fs.mkdirs(f"{root}/a/b")
    fs.mkdirs(f"{root}/a/b")
    fs.touch(f"{root}/a/empty")
    fs.touch(f"{root}/a/empty")
    with pytest.raises(FSFileExistsError, match="exist_ok"):
        fs.touch(f"{root}/a/empty", exist_ok=False)
    with pytest.raises(FSFileExistsError, match="is a file"):
        fs.mkdirs(f"{root}/a/empty")
    assert fs.ls_dir(f"{root}/a") == (["b"], ["empty"])
    assert (fs.list_dirs(f"{root}/a"), fs.cat(f"{root}/a/empty"), fs.cat(f"{root}/a")) == (["b"], "", "")
    assert (fs.is_dir(f"{root}/a"), fs.is_file(f"{root}/a")) == (True, False)
    assert (fs.is_dir(f"{root}/a/empty"), fs.is_file(f"{root}/a/empty")) == (False, True)
    fs.delete(f"{root}/a")
    fs.delete(f"{root}/a")
    assert not fs.is_exist(f"{root}/a/empty")


def test_moves_never_replace_a_target_unasked(place: tuple[FS, str]) -> None:
    fs, root = place
    fs.mkdirs(f"{root}/src/inner")
    fs.touch(f"{root}/src/inner/file")
    fs.touch(f"{root}/other")
    with pytest.raises(FSFileExistsError, match="overwrite=True"):
        fs.mv(f"{root}/src", f"{root}/other")
    with pytest.raises(FSFileNotExistsError, match="nothing"):
        fs.mv(f"{root}/nothing", f"{root}/x")
    fs.mv(f"{root}/src", f"{root}/other", overwrite=True)
    assert fs.ls_dir(f"{root}/other/inner") == ([], ["file"])
    fs.rename(f"{root}/other/inner/file", f"{root}/new/place")
    assert (fs.is_file(f"{root}/new/place"), fs.is_exist(f"{root}/src")) == (True, False)


def test_upload_and_download(place: tuple[FS, str], tmp_path: Path) -> None:
    fs, root = place
    local = tmp_path / "local"
    (local / "sub").mkdir(parents=True)
    (local / "text").write_text("one\ntwo")
    (local / "sub" / "data").write_bytes(b"\0\1")
    fs.upload(str(local / "text"), f"{root}/text")
    assert fs.cat(f"{root}/text") == "one\ntwo"
    with pytest.raises(FSFileExistsError):
        fs.upload(str(local / "text"), f"{root}/text")
    fs.upload(str(local / "sub" / "data"), f"{root}/text", overwrite=True)
    fs.upload_dir(str(local), f"{root}/models/")
    assert fs.ls_dir(f"{root}/models") == (["sub"], ["text"])
    fs.download(f"{root}/models", str(tmp_path / "back"))
    assert (tmp_path / "back" / "sub" / "data").read_bytes() == b"\0\1"
    with pytest.raises(FSFileExistsError, match="on this machine"):
        fs.download(f"{root}/text", str(tmp_path / "back"))
    fs.download(f"{root}/text", str(tmp_path / "back"), overwrite=True)
    assert (tmp_path / "back").read_bytes() == b"\0\1"
    with pytest.raises(FSFileNotExistsError):
        fs.download(f"{root}/nothing", str(tmp_path / "x"))
    with pytest.raises(FSFileNotExistsError, match="on this machine"):
        fs.upload(str(tmp_path / "nothing"), f"{root}/x")


def test_local_files_need_no_upload_and_paddles_names_are_there() -> None:
    assert not LocalFS().need_upload_download()
    assert HDFSClient(None, {"fs.default.name": "memory://"}).need_upload_download()
    assert hdfs.HDFSClient is HDFSClient is fleet.utils.HDFSClient
    assert all(issubclass(e, ArgosyError) for e in (ExecuteError, FSFileExistsError, FSTimeOut))


def test_a_url_without_a_driver_and_a_missing_url_raise() -> None:
    with pytest.raises(ConfigError, match="no driver for 'xyz://host'"):
        HDFSClient(None, {"fs.default.name": "xyz://host"})
    with pytest.raises(ConfigError, match="give the URL"):
        HDFSClient("/opt/hadoop", {"hadoop.job.ugi": "user,secret"})


class Unreliable(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """A driver whose connection fails as often as `failures` says."""

    protocol = "unreliable"
    failures = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("unreliable://").strip("/")

    def exists(self, path: str, **kwargs: Any) -> bool:
        if Unreliable.failures:
            Unreliable.failures -= 1
            raise ConnectionResetError("reset by peer")
        return bool(super().exists(path, **kwargs))


def test_a_broken_connection_is_retried_until_the_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    fsspec.register_implementation("unreliable", Unreliable, clobber=True)
    configs = {"fs.default.name": "unreliable://"}
    patient = HDFSClient(None, configs, time_out=60_000, sleep_inter=1)
    Unreliable.failures = 2
    with caplog.at_level(logging.INFO, logger="argosy"):
        assert not patient.is_exist("unreliable:/nothing")
    assert Unreliable.failures == 0
    Unreliable.failures = 1
    with pytest.raises(FSTimeOut, match="reset by peer"):
        HDFSClient(None, configs, time_out=0, sleep_inter=1).is_exist("/x")


def test_a_path_without_a_protocol_is_below_the_bucket() -> None:
    fsspec.register_implementation("unreliable", Unreliable, clobber=True)
    client = HDFSClient(None, {"fs.default.name": "unreliable://bucket", "hadoop.job.ugi": "user,secret"})
    client.touch("/folder/file")
    assert client.ls_dir("unreliable://bucket/folder") == ([], ["file"])
    assert client.ls_dir("unreliable:/folder") == client.ls_dir("/folder")
    client.delete("/folder")
