"""How much shared memory a process uses: segments of the collectives, and files in /dev/shm of its loaders' processes.

memfd:argosy-shm    gradient buffers of all ranks of the host; part of no file system, so /dev/shm does not limit it
/dev/shm/…          batches on their way from worker processes of a DataLoader, and what other libraries put there
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SEGMENT, _FILE = "/memfd:argosy-shm", "/dev/shm/"
_MAPPED = re.compile(
    rf"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) (\d+) +({_SEGMENT}|{_FILE})", re.MULTILINE
)
"""A line of /proc/PID/maps: first and last address, offset, device, inode, path."""


@dataclass(frozen=True)
class SharedMemoryUse:
    """Bytes; each segment and each file counts once."""

    segments_bytes: int
    dev_shm_bytes: int


def used(pid: int | str = "self") -> SharedMemoryUse:
    """What a process and its descendants have mapped or open now; some milliseconds."""
    sizes: dict[tuple[str, str], int] = {}
    for number in (str(pid), *_descendants(str(pid))):
        with contextlib.suppress(OSError):  # it has ended
            _add_mapped(number, sizes)
            _add_open(number, sizes)
    totals = dict.fromkeys((_SEGMENT, _FILE), 0)
    for (kind, _), size in sizes.items():
        totals[kind] += size
    return SharedMemoryUse(totals[_SEGMENT], totals[_FILE])


def _add_mapped(pid: str, sizes: dict[tuple[str, str], int]) -> None:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        text = file.read()
    for begin, end, offset, device, inode, kind in _MAPPED.findall(text):
        key = (kind, f"{device} {inode}")
        sizes[key] = max(sizes.get(key, 0), int(offset, 16) + int(end, 16) - int(begin, 16))


def _add_open(pid: str, sizes: dict[tuple[str, str], int]) -> None:
    """Batches that the loader's process has sent and the rank has not mapped yet are open files."""
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(entry.path).startswith(_FILE):
                status = os.stat(entry.path)
                device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                sizes.setdefault((_FILE, f"{device} {status.st_ino}"), status.st_size)


def _descendants(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in file.read().split():
                    yield child
                    yield from _descendants(child)
