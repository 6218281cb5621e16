"""The disk operations of a parameter server: atomic replacement of files, and append-only files.

A server writes through a `Disk`, so that tests can substitute a disk that fills up, loses unsynced data, or returns
corrupt bytes.
"""

# SPDX-License-Identifier: Apache-2.0
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from argosy.engine.checksum import Buffer
from argosy.engine.files import replacing, sync

__all__ = ["AppendFile", "Buffer", "Disk"]
_MAX_PARTS = os.sysconf("SC_IOV_MAX")


class AppendFile:
    """An append-only file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._descriptor).st_size

    def append(self, parts: Iterable[Buffer]) -> None:
        """Append all of these bytes; a partial write is truncated if that fails."""
        views = [view for part in parts if len(view := memoryview(part).cast("B"))]
        try:
            while views:
                written = os.writev(self._descriptor, views[:_MAX_PARTS])
                views = _rest(views, written)
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)

    def truncate(self, size: int) -> None:
        """Truncate the file to this size."""
        os.ftruncate(self._descriptor, size)
        self.size = size

    def sync(self) -> None:
        """Return when all appended data is durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class Disk:
    """The disk of this machine."""

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents; no effect if it exists."""
        path.mkdir(parents=True, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        """The names of the files in a folder, sorted; none if there is no such folder."""
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []

    def read(self, path: Path) -> memoryview:
        """The bytes of a file, memory-mapped."""
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        """Write a file atomically; it is durable when this returns."""
        with replacing(path) as file:
            for part in parts:
                file.write(part)
        sync(path.parent)

    def open_append(self, path: Path) -> AppendFile:
        """Open a file to append to; created if it does not exist."""
        return AppendFile(path)

    def sync_names(self, folder: Path) -> None:
        """Sync a folder: names of new files survive a power failure."""
        sync(folder)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)


def _rest(views: list[memoryview], written: int) -> list[memoryview]:
    """The buffers without their first `written` bytes."""
    for i, view in enumerate(views):
        if written < len(view):
            return [view[written:], *views[i + 1 :]]
        written -= len(view)
    return []
