"""The processes of a job on this host: start them, hear of their ends, end them with all their children."""

# SPDX-License-Identifier: Apache-2.0
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs, report
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.guard import Guard, kill_group
from argosy.engine.launch.layout import Rank
from argosy.engine.launch.mirror import Mirror
from argosy.engine.launch.report import Death
from argosy.engine.launch.say import logger

LOOK_S = 0.5
"""How often the state of the processes is looked at; an end is noticed at once."""
COLLECT_S = 0.5
"""After the first failure: time for others that fail of the same cause."""
GRACE_S = 2.0
"""Between TERM and KILL."""
STOPPED_S = 3.0


@dataclass(frozen=True)
class Ended:
    """An event: a process has ended with this code."""

    rank: Rank
    code: int


@dataclass(frozen=True)
class Signalled:
    """An event: the launcher has got a signal."""

    number: int


Events = queue.SimpleQueue[Ended | Signalled]


@dataclass(kw_only=True)
class Processes:
    """What runs, and what has become of the rest."""

    command: list[str]
    config: Configuration
    guard: Guard
    events: Events
    running: dict[Rank, subprocess.Popen[bytes]] = field(default_factory=dict)
    pids: dict[Rank, int] = field(default_factory=dict)
    completed: list[Rank] = field(default_factory=list)
    failures: list[Death] = field(default_factory=list)
    ended_by_us: list[Rank] = field(default_factory=list)
    signal: int | None = None

    def log_of(self, rank: Rank) -> str:
        """Where the stdout and stderr of a process go."""
        return logs.process_log(self.config.log_dir, rank.role, rank.local_rank)

    def start(self, rank: Rank, pass_fds: Collection[int] = ()) -> None:
        """Start a process, as long as this one has no thread; `watch` comes later."""
        self._start(rank, self.command, pass_fds, plain=True)

    def start_beside_threads(self, rank: Rank) -> None:
        """Start a process while others are watched, and watch it."""
        command, pass_fds = self.guard.by_itself(self.command)
        self._start(rank, command, pass_fds, plain=False)
        self.watch(rank)

    def _start(self, rank: Rank, command: list[str], pass_fds: Collection[int], plain: bool) -> None:
        log = os.open(self.log_of(rank), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        try:
            self.running[rank] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=rank.environ,
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=self.guard.in_child if plain else None,  # noqa: PLW1509  (no thread runs yet)
            )
        except (OSError, subprocess.SubprocessError) as e:
            raise ConfigError(f"cannot start {rank.name}: {e}; see ulimit -u and the free memory") from e
        finally:
            os.close(log)
        self.pids[rank] = self.running[rank].pid

    def watch(self, rank: Rank) -> None:
        """Let the end of a process become an event.

        A thread for each waits in the kernel, so that the order of deaths is the true one. They come
        after the last fork: a fork beside threads may copy a lock that nobody will release.
        """
        threading.Thread(target=self._wait, args=(rank, self.running[rank]), daemon=True).start()

    def _wait(self, rank: Rank, process: subprocess.Popen[bytes]) -> None:
        self.events.put(Ended(rank, process.wait()))

    def next_event(self, timeout_s: float) -> Ended | Signalled | None:
        """What has happened, None if nothing has in this time."""
        try:
            event = self.events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if isinstance(event, Ended) and self.running.pop(event.rank, None) is None:
            return None  # a late message of the start before this one
        return event

    def note_failure(self, event: Ended) -> Death:
        """Read what the process has left in its log."""
        log = self.log_of(event.rank)
        raised = report.last_traceback(log) if event.code > 0 else None
        death = Death(event.rank, self.pids[event.rank], event.code, log, raised)
        self.failures.append(death)
        return death

    def tell_to_end(self, ranks: Collection[Rank]) -> None:
        """SIGTERM to these and their children."""
        for rank in ranks:
            kill_group(self.pids[rank], signal.SIGTERM)
            kill_group(self.pids[rank], signal.SIGCONT)  # a stopped process would not see the first one

    def end(self) -> None:
        """End what runs, also children that processes have left behind."""
        self.ended_by_us += self.running
        self.tell_to_end(self.running)
        self.wait_for_all(GRACE_S)
        for rank in list(self.pids):
            if rank not in self.running:
                self.end_children(rank)
        for rank in self.running:
            kill_group(self.pids[rank], signal.SIGKILL)
        self.wait_for_all(1.0)
        for rank, pid in self.pids.items():
            if rank in self.running:
                logger.warning("%s (pid %d) does not end: it hangs in the kernel", rank.name, pid)
            else:
                self.guard.forget(pid)

    def end_children(self, rank: Rank) -> None:
        """The process has ended: end what it has left behind, and forget it."""
        kill_group(self.pids[rank], signal.SIGKILL)
        self.guard.forget(self.pids.pop(rank))

    def wait_for_all(self, timeout_s: float) -> None:
        """Until nothing runs any more, or the user has no more patience."""
        until = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until:
            event = self.next_event(until - time.monotonic())
            if isinstance(event, Signalled):
                self.signal = self.signal or event.number
                if event.number == signal.SIGINT:
                    return  # asked for a second time: at once

    def finish(self, mirror: Mirror) -> None:
        """Show what is left; a slow reader of our stdout is waited for, unless the news is bad."""
        until = time.monotonic() + (2.0 if self.failures or self.signal else float("inf"))
        while not mirror.finish(timeout_s=0.1) and time.monotonic() < until:
            if isinstance(self.next_event(0.0), Signalled):
                return


class StoppedProcesses:
    """Says once of each stopped process that it is, and how to let it go on."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._since: dict[Rank, float] = {}
        self._said: set[Rank] = set()

    def look(self, now: float) -> None:
        for rank in self._processes.running:
            pid = self._processes.pids[rank]
            if not _is_stopped(pid):
                self._since.pop(rank, None)
                self._said.discard(rank)
            elif now - self._since.setdefault(rank, now) >= STOPPED_S and rank not in self._said:
                self._said.add(rank)
                logger.warning(
                    "%s (pid %d) is stopped, the others wait for it; let it go on with: kill -CONT %d",
                    *(rank.name, pid, pid),
                )


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False
