"""LocalFS: the file system interface of 1.x, for the mounted file systems of this host."""

# SPDX-License-Identifier: Apache-2.0
import os
import shutil
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing

__all__ = ["LocalFS"]


class LocalFS:
    """Files and directories of this host."""

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """The names of the directories and of the files in a directory, sorted; none if it does not exist."""
        if not self.is_exist(fs_path):
            return [], []
        entries = sorted(os.scandir(fs_path), key=lambda entry: entry.name)
        return [e.name for e in entries if e.is_dir()], [e.name for e in entries if not e.is_dir()]

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the directories in a directory."""
        return self.ls_dir(fs_path)[0]

    def is_exist(self, fs_path: str) -> bool:
        """True if there is such a file or directory."""
        return Path(fs_path).exists()

    def is_file(self, fs_path: str) -> bool:
        """True if it is a file."""
        return Path(fs_path).is_file()

    def is_dir(self, fs_path: str) -> bool:
        """True if it is a directory."""
        return Path(fs_path).is_dir()

    def mkdirs(self, fs_path: str) -> None:
        """Create a directory, with its parents, unless it exists."""
        if self.is_file(fs_path):
            raise ConfigError(f"mkdirs: {fs_path} is a file; give the path of a directory")
        Path(fs_path).mkdir(parents=True, exist_ok=True)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a directory with all that is in it, if it exists."""
        if self.is_dir(fs_path):
            shutil.rmtree(fs_path)
        else:
            Path(fs_path).unlink(missing_ok=True)

    def rename(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a file or directory."""
        Path(fs_src_path).rename(fs_dst_path)

    def mv(self, src_path: str, dst_path: str, overwrite: bool = False, test_exists: bool = False) -> None:
        """Rename it; raises if the target exists, unless `overwrite`."""
        if self.is_exist(dst_path):
            if not overwrite:
                raise ConfigError(f"mv: {dst_path} exists; pass overwrite=True to replace it")
            self.delete(dst_path)
        self.rename(src_path, dst_path)

    def touch(self, fs_path: str, exist_ok: bool = True) -> None:
        """Create an empty file; raises if it exists, unless `exist_ok`."""
        Path(fs_path).touch(exist_ok=exist_ok)

    def need_upload_download(self) -> bool:
        """False: files are written where they are read."""
        return False


__getattr__ = missing(__name__, globals())
