"""A process that outlives a killed launcher just long enough to end the ranks and their children.

The kernel ends the ranks themselves (PR_SET_PDEATHSIG), but not what they have started. So a small
process, forked before any thread exists, reads a pipe that only the launcher holds open:

    rank, before its exec ──"+pid"──▶ ┐
    launcher, job is over ──"-pid"──▶ ├ guard     end of the pipe without "bye": SIGKILL to all groups
    launcher, at its end  ──"bye"──▶  ┘

Run as a script, this file is what a process goes through that is started beside threads: it tells the
guard its number and becomes the process that was asked for.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import os
import signal
import sys
import time
from types import TracebackType

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Guard:
    """Ends the process groups of registered ranks when this process dies without a goodbye."""

    def __enter__(self) -> "Guard":
        reading, self._writing = os.pipe()
        self._launcher = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _watch(reading, self._writing)
        os.close(reading)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._write(b"bye\n")
        os.close(self._writing)
        until = time.monotonic() + 1.0
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:  # somebody has stopped it
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.001)

    def in_child(self) -> None:
        """Called in a new rank before its exec, so that no moment is left in which nobody knows it."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the guard may have been killed
        self._write(b"+%d\n" % os.getpid())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _end_with(self._launcher)

    def by_itself(self, command: list[str]) -> tuple[list[str], tuple[int, ...]]:
        """Words that do what `in_child` does and then become the command, and the descriptor they need.

        For a start beside threads: between fork and exec nothing of ours may run there.
        """
        door = [sys.executable, "-I", "-S", __file__, str(self._writing), str(self._launcher)]
        return [*door, *command], (self._writing,)

    def forget(self, pid: int) -> None:
        """The rank and its group have ended; its number may be given to somebody else."""
        self._write(b"-%d\n" % pid)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody killed the guard; the job can do without
            os.write(self._writing, line)


def _end_with(launcher: int) -> None:
    """Let the kernel end this process when the launcher dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before the line above took effect
        os._exit(1)


def _become(writing: int, launcher: int, command: list[str]) -> None:
    """What `by_itself` starts; never returns."""
    os.set_inheritable(writing, False)  # the guard must see the end of the pipe
    with contextlib.suppress(BrokenPipeError):
        os.write(writing, b"+%d\n" % os.getpid())
    _end_with(launcher)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, which an exec would hand on
    os.execv(command[0], command)


def _watch(reading: int, writing: int) -> None:
    """The guard's whole life; never returns."""
    try:
        os.setsid()  # Ctrl-C is not for the guard
        os.close(writing)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)  # whoever reads the launcher's output must see its end
        with os.fdopen(reading, "rb") as pipe:
            groups: set[int] = set()
            for line in pipe:
                if line == b"bye\n":
                    os._exit(0)
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        for group in groups:
            kill_group(group, signal.SIGKILL)
    finally:
        os._exit(0)


def kill_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a rank and all its children that have not left its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
