"""Network namespaces: make one, move into one, find and end the processes in one."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path("/run/netns")
GRACE_S = 4.0
"""Between TERM and KILL: fleetrun gives its ranks 2 s."""
_CLONE_NEWNET = 0x40000000


def call(*words: str) -> None:
    """Run `ip` or `tc`; OSError with what it said if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        raise FileNotFoundError(f"there is no command {words[0]!r} here; apt-get install iproute2") from e
    if done.returncode:
        said = done.stderr.strip().replace("\n", " ")
        raise OSError(f"{' '.join(words)}: {said}; the lab needs root and a kernel with namespaces and tbf")


def setns(name: str) -> None:
    """Move the calling thread, and every thread that it starts from now on, into a namespace."""
    with open(FOLDER / name) as there:
        _enter(there.fileno())


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Be in a namespace for a while; a socket that is made there belongs there for good."""
    with open("/proc/thread-self/ns/net") as before:
        setns(name)
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(fd: int) -> None:
    # os.setns comes with Python 3.12.
    if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}; it needs root")


def remove(names: Iterable[str]) -> None:
    """End the processes in these namespaces, then delete them; one that is not there is fine."""
    there = [name for name in names if (FOLDER / name).exists()]
    _end_processes(there)
    for name in there:
        with contextlib.suppress(OSError):  # somebody else may sweep, too; whether it is gone is seen below
            call("ip", "netns", "del", name)
    if left := [name for name in there if (FOLDER / name).exists()]:
        raise OSError(f"cannot delete {', '.join(left)}; try: ip netns del {left[0]}")


def processes(names: Iterable[str]) -> list[int]:
    """The pids of all other processes in these namespaces; a zombie is in none."""
    wanted = {identity for name in names if (identity := _identity(FOLDER / name)) is not None}
    everybody = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal()]
    return [p for p in everybody if p != os.getpid() and _identity(Path(f"/proc/{p}/ns/net")) in wanted]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None  # gone, or another user's
    return status.st_dev, status.st_ino


def _end_processes(names: list[str]) -> None:
    """TERM, then KILL until none is left: a process may start another while we look."""
    _signal(names, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while processes(names) and time.monotonic() < until:
        time.sleep(0.05)
    until += 2.0
    while processes(names) and time.monotonic() < until:
        _signal(names, signal.SIGKILL)
        time.sleep(0.05)


def _signal(names: list[str], number: signal.Signals) -> None:
    for pid in processes(names):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
