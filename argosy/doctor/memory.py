"""Memory: of the host, of the cgroup, of /dev/shm."""

# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

from argosy.doctor.cgroup import CgroupLimits
from argosy.doctor.check import Check, Status, in_bytes

LITTLE, TOO_LITTLE = 1.0e9, 0.25e9
"""Free bytes per rank: below the first a warning, below the second a failure: torch and Argosy alone take 0.23 GB."""
LITTLE_SHM = 0.25e9
"""Free bytes of /dev/shm per rank. Docker's default is 64 MB, and a batch of 256 images of 224 x 224 has 154 MB."""


def memory(total: int, available: int, limits: CgroupLimits, ranks: int) -> Check:
    """The memory that the ranks of this host can have."""
    figure = f"{in_bytes(available)} free of {in_bytes(total)}"
    if limits.memory is not None and limits.memory < total:
        assert limits.memory_free is not None, "it is read with the limit"
        available = min(available, limits.memory_free)
        figure = f"{in_bytes(available)} free of {in_bytes(limits.memory)}, the limit of the cgroup"
    per_rank = available / ranks
    advice = (
        "" if per_rank >= LITTLE else "end other processes, raise the memory limit, or use fewer ranks here"
    )
    status: Status = "ok" if per_rank >= LITTLE else "warning" if per_rank >= TOO_LITTLE else "failure"
    return Check("memory", status, f"{figure}, {ranks} ranks", advice, available, "bytes")


def meminfo(path: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Bytes in total, and available without swapping."""
    rows = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return tuple(int(rows[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]


def dev_shm(ranks: int, path: str = "/dev/shm") -> Check:
    """The size of /dev/shm; the all-reduce does not use it, DataLoader and other libraries do."""
    try:
        disk = os.statvfs(path)
    except OSError as e:
        return Check(
            "/dev/shm",
            "warning",
            f"{path}: {e.strerror}",
            "mount a tmpfs there: worker processes of torch's DataLoader need it",
        )
    size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    figure = f"{in_bytes(free)} free of {in_bytes(size)}"
    if not os.access(path, os.W_OK):
        return Check("/dev/shm", "warning", f"{figure}, not writable", f"chmod 1777 {path}", free, "bytes")
    if free < LITTLE_SHM * ranks:
        return Check(
            "/dev/shm",
            "warning",
            figure,
            "workers of torch's DataLoader may end with a bus error: docker run --shm-size=2g, fleetrun --on k8s "
            "--shm_size=2G, or mount -o remount,size=2G /dev/shm; or delete old files there",
            free,
            "bytes",
        )
    return Check("/dev/shm", "ok", figure, value=free, unit="bytes")


def check(limits: CgroupLimits, ranks: int) -> list[Check]:
    """All checks of the memory of this host."""
    return [memory(*meminfo(), limits, ranks), dev_shm(ranks)]
