"""File systems with Paddle's interface, by drivers of fsspec: local files, HDFS, S3 and others by URL.

LocalFS()                                                    paths of this machine
HDFSClient(home, {"fs.default.name": "hdfs://host:9000"})    /dir/file or hdfs://host:9000/dir/file
HDFSClient(None, {"fs.default.name": "s3://bucket"})         /dir/file or s3://bucket/dir/file
"""

# SPDX-License-Identifier: Apache-2.0
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec

from argosy.engine.errors import (
    ConfigError,
    ExecuteError,
    FSFileExistsError,
    FSFileNotExistsError,
    FSShellCmdAborted,
    FSTimeOut,
)
from argosy.engine.log import logger
from argosy.framework.missing import missing

__all__ = [
    "FS",
    "ExecuteError",
    "FSFileExistsError",
    "FSFileNotExistsError",
    "FSShellCmdAborted",
    "FSTimeOut",
    "HDFSClient",
    "LocalFS",
]

T = TypeVar("T")

_PERMANENT = (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that depend on the files, not on the connection: a retry would fail again."""


class FS:
    """A file system: a driver of fsspec, and what every path is relative to.

    Operations raise FSFileNotExistsError and FSFileExistsError. Any other OSError of the driver is retried every
    `sleep_inter` milliseconds, and becomes FSTimeOut after `time_out` milliseconds.
    """

    def __init__(self, driver: Any, time_out: float = 0, sleep_inter: float = 1000) -> None:
        self._driver = driver
        self._time_out_s, self._sleep_s = time_out / 1000, sleep_inter / 1000

    def need_upload_download(self) -> bool:
        """True: files must be uploaded and downloaded; other processes do not see local ones."""
        return True

    def is_exist(self, fs_path: str) -> bool:
        """Whether there is a file or directory of this name."""
        return bool(self._run(self._driver.exists, fs_path))

    def is_file(self, fs_path: str) -> bool:
        """Whether the path is a file; False if it does not exist."""
        return bool(self._run(self._driver.isfile, fs_path))

    def is_dir(self, fs_path: str) -> bool:
        """Whether the path is a directory; False if it does not exist."""
        return bool(self._run(self._driver.isdir, fs_path))

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """The names of the directories and of the files in a directory; empty lists if it does not exist."""
        if not self.is_exist(fs_path):
            return [], []
        entries = self._run(lambda path: self._driver.ls(path, detail=True), fs_path)
        names: dict[bool, list[str]] = {True: [], False: []}
        for entry in entries:
            names[entry["type"] == "directory"].append(entry["name"].rstrip("/").rpartition("/")[2])
        return sorted(names[True]), sorted(names[False])

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the directories in a directory."""
        return self.ls_dir(fs_path)[0]

    def mkdirs(self, fs_path: str) -> None:
        """Create a directory and its parents, unless it exists; raises FSFileExistsError if it is a file."""
        if self.is_file(fs_path):
            raise FSFileExistsError(f"mkdirs: {fs_path} is a file; choose another name")
        self._run(lambda path: self._driver.makedirs(path, exist_ok=True), fs_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Create an empty file; an existing one is unchanged, or raises FSFileExistsError if `exist_ok` is False."""
        if self.is_exist(fs_path):
            if not exist_ok:
                raise FSFileExistsError(f"touch: {fs_path} exists; delete it, or pass exist_ok=True")
            return
        self._run(lambda path: self._driver.touch(path, truncate=True), fs_path)

    def delete(self, fs_path: str) -> None:
        """Delete a file, or a directory with its contents; nothing if it does not exist."""
        if self.is_exist(fs_path):
            self._run(lambda path: self._driver.rm(path, recursive=True), fs_path)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Move a file or directory; see `mv`."""
        self.mv(fs_src_path, fs_dst_path)

    def mv(
        self, fs_src_path: str, fs_dst_path: str, overwrite: bool = False, test_exists: bool = True
    ) -> None:
        """Move a file or directory; an existing target raises FSFileExistsError unless `overwrite`.

        The checks are made with test_exists=False, too: without them a driver may merge directories.
        """
        self._require(fs_src_path, "mv")
        self._make_room(fs_dst_path, "mv", overwrite)
        target = self._path(fs_dst_path)
        self._run(lambda path: self._driver.mv(path, target, recursive=True), fs_src_path)

    def cat(self, fs_path: str | None = None) -> str:
        """The text of a file; empty if it is not a file."""
        if fs_path is None or not self.is_file(fs_path):
            return ""
        return str(self._run(self._driver.cat_file, fs_path).decode())

    def upload(
        self, local_path: str, fs_path: str, multi_processes: int = 1, overwrite: bool = False
    ) -> None:
        """Copy a local file or directory to `fs_path`; `multi_processes` is Paddle's and has no effect."""
        if not Path(local_path).exists():
            raise FSFileNotExistsError(f"upload: {local_path} does not exist on this machine")
        self._make_room(fs_path, "upload", overwrite)
        is_dir = Path(local_path).is_dir()
        self._run(lambda path: self._driver.put(str(local_path), path, recursive=is_dir), fs_path)

    def upload_dir(self, local_dir: str, dest_dir: str, overwrite: bool = False) -> None:
        """Copy a local directory to `dest_dir`."""
        self.upload(str(local_dir).rstrip("/"), dest_dir.rstrip("/"), overwrite=overwrite)

    def download(
        self, fs_path: str, local_path: str, multi_processes: int = 1, overwrite: bool = False
    ) -> None:
        """Copy a file or directory to `local_path`; `multi_processes` is Paddle's and has no effect."""
        self._require(fs_path, "download")
        if Path(local_path).exists() and not overwrite:
            raise FSFileExistsError(f"download: {local_path} exists on this machine; pass overwrite=True")
        LocalFS().delete(local_path)
        is_dir = self.is_dir(fs_path)
        self._run(lambda path: self._driver.get(path, str(local_path), recursive=is_dir), fs_path)

    def _require(self, fs_path: str, method: str) -> None:
        if not self.is_exist(fs_path):
            raise FSFileNotExistsError(f"{method}: {fs_path} does not exist")

    def _make_room(self, fs_path: str, method: str, overwrite: bool) -> None:
        if overwrite:
            self.delete(fs_path)
        if self.is_exist(fs_path):
            raise FSFileExistsError(f"{method}: {fs_path} exists; delete it, or pass overwrite=True")
        parent = self._driver._parent(self._path(fs_path))
        self._run(lambda _: self._driver.makedirs(parent, exist_ok=True), fs_path)

    def _path(self, fs_path: str) -> str:
        """The path as the driver takes it."""
        return str(self._driver._strip_protocol(str(fs_path)))

    def _run(self, operation: Callable[[str], T], fs_path: str) -> T:
        """Call the driver with a path; retry what may be a failure of the connection."""
        deadline = time.monotonic() + self._time_out_s
        while True:
            try:
                self._driver.invalidate_cache()  # another process may have changed the files
                return operation(self._path(fs_path))
            except FileNotFoundError as e:
                raise FSFileNotExistsError(f"{fs_path}: {e}") from e
            except _PERMANENT as e:
                raise ExecuteError(f"{fs_path}: {e}") from e
            except OSError as e:
                if time.monotonic() + self._sleep_s > deadline:
                    raise FSTimeOut(
                        f"{fs_path}: failed for {self._time_out_s:g} s, last with: {type(e).__name__}: {e}"
                    ) from e
                logger.info("%s: %s: %s; retrying in %g s", fs_path, type(e).__name__, e, self._sleep_s)
            time.sleep(self._sleep_s)


class LocalFS(FS):
    """The files of this machine."""

    def __init__(self) -> None:
        super().__init__(fsspec.filesystem("file"))

    def need_upload_download(self) -> bool:
        """False: the files are here."""
        return False


class HDFSClient(FS):
    """HDFS, or any file system that fsspec has a driver for.

    `configs["fs.default.name"]` is the URL of the file system, and "hadoop.job.ugi" is "user,password", of which HDFS
    uses the user. The other entries are settings of Hadoop, or for other protocols the driver's options. HDFS needs
    `pip install pyarrow`, and Hadoop's own variables HADOOP_HOME and CLASSPATH: `hadoop_home` is only Paddle's.
    """

    def __init__(
        self,
        hadoop_home: str | None,
        configs: Mapping[str, Any] | None,
        time_out: float = 5 * 60 * 1000,
        sleep_inter: float = 1000,
    ) -> None:
        options = dict(configs or {})
        url = options.pop("fs.default.name", None) or options.pop("fs.defaultFS", None)
        if not isinstance(url, str) or not re.match(r"[\w+]+:", url):
            raise ConfigError(
                f"HDFSClient: configs['fs.default.name'] is {url!r}; give the URL of the file system, such as "
                "'hdfs://host:9000'"
            )
        user = str(options.pop("hadoop.job.ugi", "")).partition(",")[0]
        if url.startswith("hdfs:"):
            options = {"extra_conf": options or None} | ({"user": user} if user else {})
        elif user:
            logger.info("hadoop.job.ugi has no effect on %s; give the driver's options instead", url)
        if hadoop_home:
            logger.info("hadoop_home=%r has no effect: files are accessed by fsspec's drivers", hadoop_home)
        super().__init__(_driver(url, options), time_out, sleep_inter)
        parts = urlsplit(url)
        self._protocol, self._root = parts.scheme, f"{parts.scheme}://{parts.netloc}"

    def _path(self, fs_path: str) -> str:
        # Paddle's scripts write hdfs:/dir as well as hdfs://host:port/dir and /dir; in a bucket, /dir is below it.
        path = re.sub(rf"^{re.escape(self._protocol)}:/(?!/)", "/", str(fs_path))
        return super()._path(self._root + path if path.startswith("/") else path)


def _driver(url: str, options: Mapping[str, Any]) -> Any:
    try:
        return fsspec.core.url_to_fs(url, **options)[0]
    except (ImportError, ValueError) as e:
        raise ConfigError(f"HDFSClient: no driver for {url!r} ({e}); install the driver of fsspec") from e


__getattr__ = missing(__name__, globals())
