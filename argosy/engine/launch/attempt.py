"""One start of the ranks of this host: start them, watch them, end them.

start ──▶ watch ──▶ all ended with 0                                   done
               ├──▶ one failed, 0.5 s for others of the same cause ──▶ end: TERM, 2 s, KILL
               └──▶ a signal to the launcher ────────────────────────▶ end
"""

# SPDX-License-Identifier: Apache-2.0
import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs, report
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.guard import Guard, kill_group
from argosy.engine.launch.layout import Placed, Rank
from argosy.engine.launch.mirror import Mirror
from argosy.engine.launch.report import Death
from argosy.engine.launch.say import logger

LOOK_S = 0.5
"""How often the state of the ranks is looked at; an end of a rank is noticed at once."""
COLLECT_S = 0.5
"""After the first failure: time for others that fail of the same cause."""
COLLECT_CAUSE_S = 1.5
"""The same while all that failed only lost another rank, which may still be on its way out."""
GRACE_S = 2.0
"""Between TERM and KILL."""
STOPPED_S = 3.0
EARLY_END_S = 30.0


@dataclass(frozen=True)
class Ended:
    """An event: a rank has ended with this code."""

    rank: Rank
    code: int


@dataclass(frozen=True)
class Signalled:
    """An event: the launcher has got a signal."""

    number: int


Events = queue.SimpleQueue[Ended | Signalled]


@dataclass
class Attempt:
    """The processes of one start, and what has become of them."""

    placed: Placed
    command: list[str]
    config: Configuration
    guard: Guard
    events: Events
    running: dict[Rank, subprocess.Popen[bytes]] = field(default_factory=dict)
    pids: dict[Rank, int] = field(default_factory=dict)
    completed: list[Rank] = field(default_factory=list)
    failures: list[Death] = field(default_factory=list)
    ended_by_us: list[int] = field(default_factory=list)
    signal: int | None = None
    began: float = 0.0
    first_failure: float = float("inf")

    def run(self) -> None:
        """Returns when no process of the job is left; the fields say how it went."""
        self.began = time.monotonic()
        try:
            self._start_all()
            mirror = Mirror(self._shown())
            self._watch()
        finally:
            self._end()
        self._finish(mirror)

    def _finish(self, mirror: Mirror) -> None:
        """Show what is left; a slow reader of our stdout is waited for, unless the news is bad."""
        until = time.monotonic() + (2.0 if self.failures or self.signal else float("inf"))
        while not mirror.finish(timeout_s=0.1) and time.monotonic() < until:
            if isinstance(self._next(0.0), Signalled):
                return

    def _shown(self) -> list[tuple[int, str]]:
        ranks = self.placed.ranks if self.config.tee else self.placed.ranks[:1]
        return [(r.rank, logs.worker_log(self.config.log_dir, r.local_rank)) for r in ranks]

    def _start_all(self) -> None:
        try:
            for rank in self.placed.ranks:
                self.running[rank] = self._start(rank)
                self.pids[rank] = self.running[rank].pid
        finally:
            if self.placed.store is not None:
                self.placed.store.close()  # from now on it is rank 0's alone
            # A thread for each waits in the kernel, so that the order of deaths is the true one. They come
            # after the last fork: a fork beside threads may copy a lock that nobody will release.
            for rank, process in self.running.items():
                threading.Thread(target=self._wait, args=(rank, process), daemon=True).start()

    def _start(self, rank: Rank) -> subprocess.Popen[bytes]:
        store = self.placed.store if "ARGOSY_STORE_FD" in rank.environ else None
        log = os.open(
            logs.worker_log(self.config.log_dir, rank.local_rank),
            os.O_CREAT | os.O_WRONLY | os.O_APPEND,
            0o644,
        )
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=rank.environ,
                pass_fds=() if store is None else (store.fileno(),),
                start_new_session=True,
                preexec_fn=self.guard.in_child,  # noqa: PLW1509  (no thread runs yet)
            )
        except (OSError, subprocess.SubprocessError) as e:
            raise ConfigError(f"cannot start rank {rank.rank}: {e}; see ulimit -u and the free memory") from e
        finally:
            os.close(log)

    def _wait(self, rank: Rank, process: subprocess.Popen[bytes]) -> None:
        self.events.put(Ended(rank, process.wait()))

    def _watch(self) -> None:
        watcher = _Watcher(self)
        until = float("inf")
        while self.running and self.signal is None and time.monotonic() < until:
            event = self._next(min(LOOK_S, until - time.monotonic()))
            if isinstance(event, Signalled):
                self.signal = event.number
            elif isinstance(event, Ended) and event.code:
                self._note_failure(event)
                self.first_failure = min(self.first_failure, time.monotonic())
                only_lost = all(d.is_consequence for d in self.failures)
                until = self.first_failure + (COLLECT_CAUSE_S if only_lost else COLLECT_S)
            elif isinstance(event, Ended):
                self.completed.append(event.rank)
            watcher.look()

    def _next(self, timeout_s: float) -> Ended | Signalled | None:
        try:
            event = self.events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if isinstance(event, Ended) and self.running.pop(event.rank, None) is None:
            return None  # a late message of the start before this one
        return event

    def _note_failure(self, event: Ended) -> None:
        log = logs.worker_log(self.config.log_dir, event.rank.local_rank)
        raised = report.last_traceback(log) if event.code > 0 else None
        self.failures.append(Death(event.rank, self.pids[event.rank], event.code, log, raised))

    def _end(self) -> None:
        """End what runs, also children that ranks have left behind."""
        for rank in list(self.running):
            self.ended_by_us.append(rank.rank)
            kill_group(self.pids[rank], signal.SIGTERM)
            kill_group(self.pids[rank], signal.SIGCONT)  # a stopped rank would not see the first one
        self._wait_for_all(GRACE_S)
        for pid in self.pids.values():
            kill_group(pid, signal.SIGKILL)
        self._wait_for_all(1.0)
        for rank in self.running:
            logger.warning(
                "rank %d (pid %d) does not end: it hangs in the kernel", rank.rank, self.pids[rank]
            )
        for rank, pid in self.pids.items():
            if rank not in self.running:
                self.guard.forget(pid)

    def _wait_for_all(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until:
            event = self._next(until - time.monotonic())
            if isinstance(event, Signalled):
                self.signal = self.signal or event.number
                if event.number == signal.SIGINT:
                    return  # asked for a second time: at once


class _Watcher:
    """Says once what a user would wonder about: a stopped rank, ranks that ended long before the others."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._stopped_since: dict[Rank, float] = {}
        self._said: set[Rank] = set()
        self._completed_at: float | None = None
        self._looked_at = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._look_for_stopped(now)
        self._look_for_early_ends(now)

    def _look_for_stopped(self, now: float) -> None:
        for rank in self._attempt.running:
            pid = self._attempt.pids[rank]
            if not _is_stopped(pid):
                self._stopped_since.pop(rank, None)
                self._said.discard(rank)
            elif now - self._stopped_since.setdefault(rank, now) >= STOPPED_S and rank not in self._said:
                self._said.add(rank)
                logger.warning(
                    "rank %d (pid %d) is stopped, the others wait for it; let it go on with: kill -CONT %d",
                    *(rank.rank, pid, pid),
                )

    def _look_for_early_ends(self, now: float) -> None:
        if not self._attempt.completed:
            return
        if self._completed_at is None:
            self._completed_at = now
        if now - self._completed_at >= EARLY_END_S:
            self._completed_at = float("inf")  # once
            ended = sorted(r.rank for r in self._attempt.completed)
            going_on = sorted(r.rank for r in self._attempt.running)
            logger.warning("ranks %s ended with 0 some time ago; ranks %s still run", ended, going_on)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False
