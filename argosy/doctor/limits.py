"""Limits of this user and container: open files, processes, locked memory (`ulimit -n`, `-u`, `-l`)."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import resource
from pathlib import Path

from argosy.doctor.cgroup import CgroupLimits
from argosy.doctor.check import Check, in_bytes

FILES = 1024
"""Open files that a rank may need for connections, data and checkpoints: Linux's usual soft limit."""
FILES_PER_RANK = 2
"""Connections of the store at rank 0: as collective/rendezvous.py."""
TASKS_PER_RANK = 64
"""Processes and threads of a rank besides one OpenMP thread per core: gloo, heartbeat, readers."""


def files(soft: int, hard: int, size: int) -> Check:
    """`size`: all ranks of the job; Argosy raises the soft limit itself, up to the hard limit."""
    needed = FILES_PER_RANK * size + 256
    figure = f"{_shown(soft)}, at most {_shown(hard)}"
    if hard != resource.RLIM_INFINITY and hard < needed:
        return Check(
            "ulimit -n",
            "failure",
            figure,
            f"rank 0 needs {needed} open files for {size} ranks: raise the hard limit in "
            "/etc/security/limits.conf, or LimitNOFILE of the service that starts the job",
            hard,
            "files",
        )
    if soft != resource.RLIM_INFINITY and soft < FILES:
        return Check(
            "ulimit -n",
            "warning",
            figure,
            f"ulimit -n {FILES} in the shell that starts the job",
            soft,
            "files",
        )
    return Check("ulimit -n", "ok", figure, value=_value(soft), unit="files")


def processes(soft: int, used: int, cgroup: CgroupLimits, ranks: int, is_root: bool) -> Check:
    """Processes and threads that may still be started, against what the ranks of this host need."""
    needed = TASKS_PER_RANK * ranks + len(os.sched_getaffinity(0))
    figure, left = _shown(soft), float("inf")
    if is_root:
        figure += " (not for root)"
    elif soft != resource.RLIM_INFINITY:
        figure, left = f"{soft}, {used} used", soft - used
    if cgroup.tasks is not None and cgroup.tasks - cgroup.tasks_used < left:
        figure = f"{cgroup.tasks} in the cgroup (pids.max), {cgroup.tasks_used} used"
        left = cgroup.tasks - cgroup.tasks_used
    if left < needed:
        return Check(
            "ulimit -u",
            "warning",
            figure,
            f"the ranks of this host may start {needed} threads: raise the limit, or end other processes",
            left,
            "tasks",
        )
    return Check("ulimit -u", "ok", figure, value=None if left == float("inf") else left, unit="tasks")


def locked_memory(soft: int, has_rdma: bool) -> Check:
    """RDMA pins its buffers; without RDMA the limit does not matter."""
    figure = "unlimited" if soft == resource.RLIM_INFINITY else in_bytes(soft)
    if has_rdma and soft != resource.RLIM_INFINITY:
        return Check(
            "ulimit -l",
            "warning",
            f"{figure}, and there are InfiniBand or RoCE adapters",
            "NCCL cannot pin its buffers: set memlock to unlimited in /etc/security/limits.conf",
            soft,
            "bytes",
        )
    return Check("ulimit -l", "ok", figure, value=_value(soft), unit="bytes")


def own_tasks(root: Path = Path("/proc")) -> int:
    """Processes and threads of this user."""
    count = 0
    for folder in root.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has exited
                if folder.stat().st_uid == os.getuid():
                    count += len(os.listdir(folder / "task"))
    return count


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _value(limit: int) -> float | None:
    return None if limit == resource.RLIM_INFINITY else limit


def check(cgroup: CgroupLimits, ranks: int, size: int) -> list[Check]:
    """All limits of this process."""
    rdma = Path("/sys/class/infiniband")
    return [
        files(*resource.getrlimit(resource.RLIMIT_NOFILE), size),
        processes(
            resource.getrlimit(resource.RLIMIT_NPROC)[0], own_tasks(), cgroup, ranks, os.geteuid() == 0
        ),
        locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], rdma.is_dir() and any(rdma.iterdir())),
    ]
