"""The limits of the control groups, versions 1 and 2, that this process is in.

A process is limited by its group and by all groups above it, so the smallest limit up to the root counts.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60
"""Version 1 writes the largest number of pages instead of `max`."""


@dataclass(frozen=True)
class CgroupLimits:
    """None: not limited."""

    cores: float | None = None
    """CPU time per time."""
    memory: int | None = None
    """Bytes."""
    memory_free: int | None = None
    """Bytes that are left of `memory`; cached files, which the kernel can drop, count as free."""
    tasks: int | None = None
    """Processes and threads."""
    tasks_used: int = 0


def read(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> CgroupLimits:
    """The limits of this process; files that do not exist limit nothing."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return CgroupLimits()
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    cores = [*_cores_v1(root, groups), *_cores_v2(root, groups)]
    memory = [*_memory_v1(root, groups), *_memory_v2(root, groups)]
    tasks = [*_tasks(_folders(root / "pids", groups.get("pids"))), *_tasks(_unified(root, groups))]
    most, used = min(tasks, key=lambda limit: limit[0] - limit[1], default=(None, 0))
    return CgroupLimits(
        min(cores, default=None),
        min((limit for limit, _ in memory), default=None),
        min((limit - used for limit, used in memory), default=None),
        most,
        used,
    )


def _folders(mount: Path, path: str | None) -> Iterator[Path]:
    """The folder of a group and of those above it. In a container, `path` may be one of the host: not below `mount`."""
    if path is None or not mount.is_dir():
        return
    folder = mount / path.strip("/")
    while folder != mount:
        yield folder
        folder = folder.parent
    yield mount


def _unified(root: Path, groups: dict[str, str]) -> Iterator[Path]:
    """The folders of version 2, which is mounted at `unified` if version 1 is in use as well."""
    mount = root / "unified" if (root / "unified").is_dir() else root
    return _folders(mount, groups.get(""))


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no limit."""
    try:
        text = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None


def _cores_v1(root: Path, groups: dict[str, str]) -> Iterator[float]:
    for folder in _folders(root / "cpu", groups.get("cpu")):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period:  # a quota of -1 is no number: no limit
            yield quota / period


def _cores_v2(root: Path, groups: dict[str, str]) -> Iterator[float]:
    for folder in _unified(root, groups):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            yield int(quota) / int(period)


def _memory_v1(root: Path, groups: dict[str, str]) -> Iterator[tuple[int, int]]:
    for folder in _folders(root / "memory", groups.get("memory")):
        if (limit := _number(folder / "memory.limit_in_bytes")) is not None:
            used = _number(folder / "memory.usage_in_bytes") or 0
            yield limit, max(0, used - _inactive_file(folder, "total_inactive_file"))


def _memory_v2(root: Path, groups: dict[str, str]) -> Iterator[tuple[int, int]]:
    for folder in _unified(root, groups):
        if (limit := _number(folder / "memory.max")) is not None:
            used = _number(folder / "memory.current") or 0
            yield limit, max(0, used - _inactive_file(folder, "inactive_file"))


def _inactive_file(folder: Path, key: str) -> int:
    try:
        rows = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return next((int(row[1]) for row in rows if row[0] == key), 0)


def _tasks(folders: Iterator[Path]) -> Iterator[tuple[int, int]]:
    for folder in folders:
        if (limit := _number(folder / "pids.max")) is not None:
            yield limit, _number(folder / "pids.current") or 0
