"""What earlier jobs have left behind on this host, and the command that removes it.

fleetrun kills everything that its ranks have started, also when it is killed itself (launch/guard.py). What can still
be left: processes of a rank whose guard and launcher were killed at the same moment, files of torch in /dev/shm, and
temporary directories of killed servers.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from argosy.doctor.check import Check, in_bytes
from argosy.engine.launch.configuration import DOCTOR

_MARKS = (b"TORCHELASTIC_RUN_ID=fleetrun", b"ARGOSY_RESTART=")
"""A process with one of these variables was started by a rank, server or worker of fleetrun."""
_BOOTSTRAP = "engine/launch/bootstrap.py"
_TORCH_FILE = re.compile(r"torch_(\d+)_\d+_\d+")
"""What torch names a file in /dev/shm: with the pid of its creator."""
_FOLDERS = ("argosy-rows-*", "argosy-ray-*")
"""Temporary directories: rows that a parameter server has spilled, sockets and logs of a local Ray."""
_SEGMENT = "argosy-shm"
_NAMED = 5
"""How many processes or files a line lists."""


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    command: tuple[str, ...]
    is_marked: bool
    is_zombie: bool

    @property
    def launcher(self) -> int | None:
        """The pid of the launcher, if this process is a rank, server or worker: an argument of the bootstrap."""
        for index, word in enumerate(self.command[:-2]):
            if word.endswith(_BOOTSTRAP) and self.command[index + 2].isdecimal():
                return int(self.command[index + 2])
        return None


def processes(root: Path = Path("/proc")) -> list[_Process]:
    """The processes of this user, or of all users if root asks."""
    everything = []
    for folder in root.iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it has exited, or is another user's
            stat = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            environ = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
            is_marked = any(entry.startswith(_MARKS) for entry in environ)
            everything.append(
                _Process(int(folder.name), int(stat[1]), tuple(command), is_marked, stat[0] == b"Z")
            )
    return everything


def orphans(everything: Iterable[_Process], keep: Collection[int]) -> list[_Process]:
    """Processes of earlier jobs: none of their ancestors is a rank, a launcher with ranks, or in `keep`."""
    by_pid = {process.pid: process for process in everything}
    launchers = {p.launcher for p in by_pid.values() if p.launcher is not None and p.parent == p.launcher}
    alive = launchers | set(keep)

    def belongs(process: _Process) -> bool:
        seen: set[int] = set()
        while process.pid not in seen:
            if process.pid in alive:
                return True
            seen.add(process.pid)
            if process.parent not in by_pid:
                return False
            process = by_pid[process.parent]
        return False

    return [p for p in by_pid.values() if p.is_marked and not p.is_zombie and not belongs(p)]


def other_jobs(everything: Iterable[_Process], keep: Collection[int]) -> Check:
    """Jobs that run now: not left behind, but they share the cores."""
    ranks: dict[int, int] = {}
    for process in everything:
        launcher = process.launcher
        # Containers, or the hosts of a lab, may share their processes: those of a doctor are no other job.
        is_doctor = DOCTOR in process.command
        if launcher == process.parent and launcher not in keep and not is_doctor:
            ranks[launcher] = ranks.get(launcher, 0) + 1
    if not ranks:
        return Check("other jobs", "ok", "none", value=0.0, unit="jobs")
    listed = ", ".join(
        f"fleetrun {pid} with {count} processes" for pid, count in sorted(ranks.items())[:_NAMED]
    )
    return Check(
        "other jobs",
        "warning",
        f"{listed}{_more(len(ranks))}",
        "they share the cores with yours: wait for them, or choose other hosts",
        len(ranks),
        "jobs",
    )


def left_processes(
    everything: Iterable[_Process], keep: Collection[int], root: Path = Path("/proc")
) -> Check:
    """Processes of earlier jobs whose fleetrun is gone."""
    left = orphans(everything, keep)
    if not left:
        return Check("left processes", "ok", "none", value=0.0, unit="processes")
    with_segment = sum(1 for process in left if _has_segment(root / str(process.pid)))
    listed = ", ".join(f"{p.pid} ({' '.join(p.command)[:40].strip()})" for p in left[:_NAMED])
    note = f"; {with_segment} of them hold shared memory of the job" if with_segment else ""
    return Check(
        "left processes",
        "warning",
        f"{listed}{_more(len(left))}{note}",
        f"their fleetrun is gone: kill {' '.join(str(p.pid) for p in left)}",
        len(left),
        "processes",
    )


def left_files(
    everything: Iterable[_Process], shm: Path = Path("/dev/shm"), temporary: Path | None = None
) -> list[Check]:
    """Files in /dev/shm whose creator is gone, and temporary directories that no process uses."""
    return [_torch_files(shm), _folders(everything, temporary or Path(tempfile.gettempdir()))]


def _torch_files(shm: Path) -> Check:
    stale, nbytes = [], 0
    for path in sorted(shm.iterdir()) if shm.is_dir() else ():
        match = _TORCH_FILE.fullmatch(path.name)
        if match is None or Path(f"/proc/{match[1]}").exists():
            continue
        with contextlib.suppress(OSError):  # another process deletes it
            nbytes += path.stat().st_size
            stale.append(match[1])
    if not stale:
        return Check("left shared memory", "ok", "none", value=0.0, unit="bytes")
    creators = sorted(set(stale), key=int)
    return Check(
        "left shared memory",
        "warning",
        f"{in_bytes(nbytes)} in {len(stale)} files of torch in {shm}, whose processes are gone",
        f"rm {' '.join(f'{shm}/torch_{pid}_*' for pid in creators)}",
        nbytes,
        "bytes",
    )


def _folders(everything: Iterable[_Process], temporary: Path) -> Check:
    existing = sorted(path for pattern in _FOLDERS for path in temporary.glob(pattern) if path.is_dir())
    used = _in_use([p.pid for p in everything], existing) if existing else set()
    stale = [path for path in existing if path not in used and os.access(path, os.W_OK)]
    if not stale:
        return Check("left directories", "ok", "none", value=0.0, unit="directories")
    listed = ", ".join(str(path) for path in stale[:_NAMED])
    return Check(
        "left directories",
        "warning",
        f"{listed}{_more(len(stale))}: no process uses them",
        f"rm -r {' '.join(map(str, stale))}",
        len(stale),
        "directories",
    )


def _in_use(pids: Iterable[int], folders: Collection[Path]) -> set[Path]:
    """The folders in which a process has a file open, or its working directory; or which its command line names."""
    used: set[Path] = set()
    for pid in pids:
        links: list[str] = []
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{pid}/cwd"))
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
            links.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
        used |= {folder for folder in folders if any(str(folder) in link for link in links)}
    return used


def _has_segment(process: Path) -> bool:
    try:
        return _SEGMENT in (process / "maps").read_text()
    except OSError:
        return False


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""


def check() -> list[Check]:
    """All leftovers on this host; the processes of this very job are none."""
    everything, keep = processes(), {os.getpid(), os.getppid()}
    return [other_jobs(everything, keep), left_processes(everything, keep), *left_files(everything)]
