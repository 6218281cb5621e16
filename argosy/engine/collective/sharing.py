"""Memory that ranks of one host share: an anonymous file of one of them, which the others open through /proc.

It has no name, so nothing is left of it when the last process has gone, whatever ended them.
"""

# SPDX-License-Identifier: Apache-2.0
import mmap
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.engine.log import logger

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Shared:
    """A segment that several ranks have mapped."""

    memory: mmap.mmap
    ranks: tuple[int, ...]
    index: int
    """This rank's place among them."""
    pids: tuple[int, ...]


def is_possible() -> bool:
    """True on Linux on x86-64, whose stores are seen in order and whose system calls these are."""
    return platform.system() == "Linux" and platform.machine() == "x86_64" and hasattr(os, "pidfd_open")


def host_id() -> str:
    """Equal for processes of one host: of one kernel and one network, and who know each other's process numbers."""
    if not _BOOT.exists():
        return platform.node()
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]
    return "/".join([_BOOT.read_text().strip(), *spaces])


def share(
    meet: Callable[[str, str], list[str]], name: str, ranks: Sequence[int], rank: int, nbytes: int
) -> Shared | None:
    """A segment of this size for each set of `ranks` (all ranks of the job call this); None if one cannot.

    `meet(what, value)` brings a value to all ranks of the job and returns theirs.
    """
    descriptor, problem = -1, ""
    if rank == ranks[0]:
        try:
            descriptor = _create(nbytes)
        except OSError as e:
            problem = str(e)
    offers = meet(f"shared-{name}#1 (sharing memory)", f"{os.getpid()} {descriptor}")
    pids = tuple(int(offers[member].split()[0]) for member in ranks)
    memory = None
    try:
        if rank != ranks[0]:
            descriptor = _open(pids[0], int(offers[ranks[0]].split()[1]))
        memory = mmap.mmap(descriptor, nbytes) if descriptor >= 0 else None
    except OSError as e:
        problem = str(e)
    problems = [p for p in meet(f"shared-{name}#2 (sharing memory)", problem) if p]  # now all have opened it
    if descriptor >= 0:
        os.close(descriptor)
    if problems or memory is None:
        logger.warning(
            "ranks exchange through sockets, they cannot share memory (%s); ARGOSY_HOST_PLANE=0 says so beforehand",
            problems[0],
        )
        return None
    return Shared(memory, tuple(ranks), ranks.index(rank), pids)


def _create(nbytes: int) -> int:
    made = os.memfd_create("argosy-host-plane", os.MFD_CLOEXEC)
    os.ftruncate(made, nbytes)
    return made


def _open(pid: int, descriptor: int) -> int:
    """A descriptor of another process's segment; OSError if it has none, or this process may not."""
    return os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
