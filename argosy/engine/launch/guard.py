"""The two processes of the launcher: one runs the job, the other kills what the first may leave behind.

    guard (the command) ──fork──▶ launcher ──▶ ranks ──▶ their children, in any session

Both are subreapers: a process whose parent exits becomes a child of the launcher, or of the guard once the launcher
has exited. So each of them finds the remaining processes of the job among its children, and kills them:

    the job ends               the launcher kills the processes that the ranks have left behind
    the launcher is killed     the guard does so
    the guard is killed        the kernel sends SIGTERM to the launcher, which terminates the job

A process is only signalled by its parent, before it is reaped: until then the kernel does not reuse its pid.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import NoReturn

from argosy.engine import process_effects
from argosy.engine.errors import ConfigError
from argosy.engine.launch.console import logger

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_guard: int | None = None
"""In the launcher: the pid of its guard."""
_companions: set[int] = set()
"""In the launcher: children that are no part of the job, such as the dashboard. The guard kills them, too."""
_KILL_S = 5.0
"""How long to wait for killed processes."""


def run_guarded(work: Callable[[], int]) -> int:
    """Run `work` in a child process; when that exits, for whatever reason, kill all its descendants.

    Returns the result of `work`, or 128 + n if signal n killed the process. A ConfigError of `work` is raised here.
    """
    _flush()
    before, guard = children(), os.getpid()
    with _subreaper(), process_effects.during("launcher-signals"):
        reading, writing = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        launcher = os.fork()
        if launcher == 0:
            os.close(reading)
            _work(work, guard, writing)
        os.close(writing)
        code = _wait_for(launcher, before)
        with os.fdopen(reading, errors="replace") as pipe:
            problem = pipe.read()
    if problem:
        raise ConfigError(problem)
    return code


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Adopt orphaned descendants inside."""
    with process_effects.during("subreaper"):
        before = ctypes.c_int()
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def guard_pid() -> int | None:
    """In the launcher: the process that the user has started, which has the terminal."""
    return _guard


def keep_child(pid: int, is_kept: bool = True) -> None:
    """Spare a child of the launcher when those that a job has left behind are killed, and do not reap it."""
    (_companions.add if is_kept else _companions.discard)(pid)


def signal_name(number: int) -> str:
    """The name of a signal to the launcher, or its cause if the guard was killed."""
    return "fleetrun was killed" if is_orphan() else signal.Signals(number).name


def signal_code(number: int) -> int:
    """The exit code of a job that a signal to the launcher ended: 128 + n; 1, a failure, if the guard was killed."""
    return 1 if is_orphan() else 128 + number


def is_orphan() -> bool:
    """True in a launcher whose guard was killed: SIGTERM is then the kernel's."""
    return _guard is not None and os.getppid() != _guard


def _wait_for(launcher: int, keep: Collection[int]) -> int:
    """Forward signals to the launcher until it exits, kill what it has left behind, and return its exit code."""

    def forward(number: int, frame: FrameType | None) -> None:
        os.kill(launcher, number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = {n: old for n, old in before.items() if old != signal.SIG_IGN}  # nohup ignores SIGHUP
    for number in handled:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # Not reaped yet: `forward` may still be called.
    status = os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOWAIT)
    for number in handled:
        signal.signal(number, signal.SIG_IGN)  # during the clean-up
    os.waitpid(launcher, 0)
    kill_children(keep)
    for number, old in handled.items():
        signal.signal(number, old)
    assert status is not None, "only WNOHANG returns None"
    if status.si_code == os.CLD_EXITED:
        return status.si_status
    name = signal.Signals(status.si_status).name
    logger.error("the launcher (pid %d) was killed by %s; killed all its processes", launcher, name)
    return 128 + status.si_status


def _work(work: Callable[[], int], guard: int, writing: int) -> NoReturn:
    """The launcher's process."""
    global _guard
    code, _guard = 1, guard
    try:
        os.setsid()  # signals of the terminal go to the guard, which forwards them
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != guard:  # it died before PDEATHSIG was set
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        code = work()
    except ConfigError as e:
        os.write(writing, str(e).encode()[:4096])
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent, or the thread that started it, ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # None: it was closed before the start
            stream.flush()


def children() -> frozenset[int]:
    """The pids of all children of this process, including adopted ones and zombies."""
    pids: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                pids.update(map(int, file.read().split()))
    except FileNotFoundError:  # a thread has exited meanwhile, or the kernel does not have this file
        this = os.getpid()
        return frozenset(
            p for p in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent(p) == this
        )
    return frozenset(pids)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def kill_children(keep: Collection[int] = ()) -> None:
    """Kill all children of this process, and those it adopts by that, until only `keep` are left."""
    deadline, spared = time.monotonic() + _KILL_S, {*keep, *_companions}
    # The kernel may omit a child while another one is reaped: an empty list is only certain if read twice.
    while left := (children() - spared or children() - spared):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                logger.warning(
                    "no permission to kill process %d, which the job has left behind; kill it by hand", pid
                )
                spared.add(pid)
        reap_children(spared)
        if time.monotonic() > deadline:
            names = ", ".join(map(str, sorted(left)))
            logger.warning("processes %s, which the job has left behind, do not exit after SIGKILL", names)
            return
        time.sleep(0.001)


def reap_children(keep: Collection[int]) -> None:
    """Reap the children that have exited, except `keep`."""
    for pid in children() - {*keep, *_companions}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to the process group of a child that is not reaped yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *map(ctypes.c_ulong, (0, 0, 0)))
