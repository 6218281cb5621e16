"""A simulated disk: it fills up, loses what was not synced in a power failure, tears writes, and rots.

A file has what processes see, and what a power failure leaves. A kill of the process leaves what processes see, with
the write in flight torn at any byte.
"""

# SPDX-License-Identifier: Apache-2.0
import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from argosy.engine.disk import AppendFile, Buffer, Disk
from tests.simulation.scheduler import World


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class SimulatedDisk(Disk):
    """The disk of one host; it outlives the processes that use it."""

    def __init__(self, world: World, slow_s: float = 0.0) -> None:
        """`slow_s`: how long an operation takes, at most."""
        self._world, self._slow_s = world, slow_s
        self._files: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        """What the folders say after a power failure."""
        self.is_full = False
        self._planned_kill: tuple[int, Callable[[], None]] | None = None

    # --- what the server calls ------------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        self._pause()

    def names(self, folder: Path) -> list[str]:
        self._world.check_alive()
        return sorted(path.name for path in self._files if path.parent == folder)

    def read(self, path: Path) -> memoryview:
        self._world.check_alive()
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return memoryview(bytes(self._files[path].data))

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self._pause()
        file = self._files[temporary] = _File()
        self.append_to(file, parts)
        self._pause()
        file.synced = bytes(file.data)
        self._pause()
        del self._files[temporary]
        self._files[path] = file
        self._pause()
        self.sync_names(path.parent)

    def open_append(self, path: Path) -> AppendFile:
        self._pause()
        return _SimulatedFile(self, path, self._files.setdefault(path, _File()))

    def sync_names(self, folder: Path) -> None:
        self._pause()
        for path in [path for path in self._durable_names if path.parent == folder]:
            if path not in self._files:
                del self._durable_names[path]
        self._durable_names |= {path: file for path, file in self._files.items() if path.parent == folder}

    def remove(self, path: Path) -> None:
        self._pause()
        self._files.pop(path, None)

    # --- what goes wrong ------------------------------------------------------------------------------

    def kill_in(self, operations: int, kill: Callable[[], None]) -> None:
        """Call this in the middle of one of the next operations, before anything else happens."""
        self._planned_kill = (operations, kill)

    def fail_power(self) -> None:
        """Lose what was not synced; of an unsynced end of a file a part may have been written."""
        source = self._world.random
        names = dict(self._durable_names)
        for path, file in self._files.items():  # a new name may have come through, or not
            if path not in names and source.random() < 0.5:
                names[path] = file
        for file in names.values():
            unsynced = bytes(file.data[len(file.synced) :]) if file.data.startswith(file.synced) else b""
            file.data = bytearray(file.synced + unsynced[: source.randrange(len(unsynced) + 1)])
            file.synced = bytes(file.data)
        self._files, self._durable_names = names, dict(names)

    def rot(self) -> tuple[Path, int] | None:
        """Flip one bit of a file; where, so that `heal` can undo it."""
        paths = sorted(path for path, file in self._files.items() if file.data)
        if not paths:
            return None
        path = self._world.random.choice(paths)
        place = self._world.random.randrange(8 * len(self._files[path].data))
        self.heal((path, place))
        return path, place

    def heal(self, place: tuple[Path, int]) -> None:
        """Flip that bit again, if the file is still there."""
        path, bit = place
        if path in self._files and bit // 8 < len(self._files[path].data):
            self._files[path].data[bit // 8] ^= 1 << bit % 8

    def bytes_of(self, path: Path) -> bytes | None:
        """What is in a file, for checks."""
        return bytes(self._files[path].data) if path in self._files else None

    # --- writing --------------------------------------------------------------------------------------

    def _pause(self) -> None:
        """A system call: it takes a while, others may run, and the process may be killed before it happens."""
        if self._planned_kill is not None:
            operations, kill = self._planned_kill
            self._planned_kill = (operations - 1, kill)
            if not operations:
                self._planned_kill = None
                self._world.after(0.0, kill)
                self._world.interrupt()
        if self._slow_s:
            self._world.block(self._world.random.random() * self._slow_s)
        else:
            self._world.may_interrupt()

    def append_to(self, file: _File, parts: Iterable[Buffer]) -> None:
        """Write bytes to the end of a file: in two halves, so that a kill or a full disk leaves a torn write."""
        data = b"".join(bytes(part) for part in parts)
        cut = self._world.random.randrange(len(data) + 1)
        file.data += data[:cut]
        self._pause()
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        file.data += data[cut:]
        self._pause()


class _SimulatedFile(AppendFile):
    def __init__(self, disk: SimulatedDisk, path: Path, file: _File) -> None:
        self.path, self._disk, self._file = path, disk, file
        self.size = len(file.data)

    def append(self, parts: Iterable[Buffer]) -> None:
        try:
            self._disk.append_to(self._file, parts)
        except OSError:
            self.truncate(self.size)
            raise
        self.size = len(self._file.data)

    def truncate(self, size: int) -> None:
        self._disk._pause()
        del self._file.data[size:]
        self.size = size

    def sync(self) -> None:
        self._disk._pause()
        self._file.synced = bytes(self._file.data)

    def close(self) -> None:
        pass
