"""The processes of a job on this host: start them, get their exits as events, kill them with all their children."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from argosy.engine.errors import ConfigError
from argosy.engine.launch import entrypoint, failure_report, logs
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.failure_report import ErrorRecord, ProcessExit, read_error
from argosy.engine.launch.guard import kill_children, kill_group, reap_children
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.node_messages import Joined, Plan, Verdict
from argosy.engine.launch.preemption import GracePeriod
from argosy.engine.launch.rank_env import ProcessSpec
from argosy.engine.launch.tee import Tee

POLL_S = 0.1
"""How often error files are checked; the exit of a process is an event."""
STATE_S = 0.5
"""How often to check for stopped processes."""
REAP_S = 5.0
"""How often adopted zombies are reaped."""
COLLECT_S = 0.5
"""After the first failure: how long to wait for others of the same cause."""
GRACE_S = 2.0
"""Between TERM and KILL."""
STOPPED_S = 1.0


@dataclass(frozen=True)
class ExitEvent:
    """A process has exited with this code."""

    spec: ProcessSpec
    code: int
    at: float
    """By time.time()."""


@dataclass(frozen=True)
class SignalEvent:
    """The launcher has received a signal."""

    number: int


Events = queue.SimpleQueue[ExitEvent | SignalEvent | Joined | Plan | Verdict]


@dataclass(kw_only=True)
class Processes:
    """The running processes of a job, and the exits of the others."""

    command: list[str]
    config: Configuration
    events: Events
    record: JobRecord
    started: dict[ProcessSpec, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Processes that are not reaped yet: the kernel does not reuse their pids and process groups."""
    running: set[ProcessSpec] = field(default_factory=set)
    codes: dict[ProcessSpec, int] = field(default_factory=dict)
    """The exit codes of the processes that have exited."""
    completed: list[ProcessSpec] = field(default_factory=list)
    failures: list[ProcessExit] = field(default_factory=list)
    signal: int | None = None
    node: int | None = None
    """In a job of several launchers: which of the nodes this is."""
    verdict: Verdict | None = None
    """How the job has ended on all nodes."""
    on_verdict: Callable[[Verdict], None] | None = None
    grace: GracePeriod = field(init=False)
    _terminated: set[ProcessSpec] = field(default_factory=set)
    _reaped_at: float = 0.0
    _unreadable: set[ProcessSpec] = field(default_factory=set)
    """Processes whose error file is malformed; each is reported once."""

    @property
    def is_ended(self) -> bool:
        """True if a signal, or a failure on another node, ends the job."""
        return self.signal is not None or self.verdict is not None

    def __post_init__(self) -> None:
        self.grace = GracePeriod(self.config)

    def log_of(self, spec: ProcessSpec) -> str:
        """Where the stdout and stderr of a process go."""
        return logs.process_log(self.config.log_dir, spec.role, spec.local_rank)

    def pid_of(self, spec: ProcessSpec) -> int:
        return self.started[spec].pid

    def start(self, spec: ProcessSpec, pass_fds: Collection[int] = ()) -> None:
        """Start a process; its exit becomes an event."""
        errors = logs.error_file(self.log_of(spec))
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(errors)  # of the previous start
            with open(self.log_of(spec), "ab") as log:
                self.started[spec] = subprocess.Popen(
                    entrypoint.bootstrap_command(self.command, errors),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=spec.environ,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
            self._watch_for_exit(spec)
            self.running.add(spec)
            self.record.started(spec, self.pid_of(spec), self.log_of(spec))
        except (OSError, subprocess.SubprocessError, RuntimeError) as e:
            raise ConfigError(
                f"cannot start {spec.name}: {e}; see ulimit -u, ulimit -n, the free memory and the free disk"
            ) from e

    def _watch_for_exit(self, spec: ProcessSpec) -> None:
        """Start a thread that waits for the exit, so that exits become events in the order in which they happen."""
        pid = self.pid_of(spec)

        def wait() -> None:
            # Not reaped here: the pid must not be reused until the process group has been killed.
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert status is not None, "only WNOHANG returns None"
            code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
            self.events.put(ExitEvent(spec, code, time.time()))

        try:
            threading.Thread(target=wait, daemon=True).start()
        except RuntimeError:  # no more threads: the exit of the process would go unnoticed
            self.kill_and_reap(spec)
            raise

    def next_event(self, timeout_s: float) -> ExitEvent | SignalEvent | None:
        """The next event, or None after the timeout."""
        try:
            event = self.events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if isinstance(event, SignalEvent):
            return event
        if isinstance(event, ExitEvent):
            if event.spec not in self.running:
                return None  # a late event of the previous attempt
            self.running.remove(event.spec)
            self.codes[event.spec] = event.code
            self.record.exited(event.spec, event.code, self._is_expected(event))
            return event
        assert isinstance(event, Verdict), "plans are read before processes are started"
        self.verdict = event
        if self.on_verdict is not None:
            self.on_verdict(event)
        return None

    def _is_expected(self, event: ExitEvent) -> bool:
        """True if the launcher has terminated the process, or it was preempted."""
        is_requeue = self.config.grace_s is not None and event.code == self.config.requeued_with
        return event.spec in self._terminated or is_requeue

    def error_of(self, spec: ProcessSpec) -> ErrorRecord | None:
        """The error file of a process, if it has written one."""
        return read_error(logs.error_file(self.log_of(spec)))

    def new_errors(self) -> list[ProcessExit]:
        """The processes that have written an error file, but still run: their exit may take a while."""
        known = {failure.spec for failure in self.failures} | self._unreadable
        failing = []
        for spec in self.running - known:
            if not os.path.exists(logs.error_file(self.log_of(spec))):
                continue
            if error := self.error_of(spec):
                failing.append(self._exit(spec, error.exit_code, error, error.time))
            else:
                self._unreadable.add(spec)
        return failing

    def exit_of(self, event: ExitEvent) -> ProcessExit:
        """How a process ended, with its error file."""
        error = self.error_of(event.spec)
        return self._exit(event.spec, event.code, error, error.time if error else event.at)

    def _exit(
        self,
        spec: ProcessSpec,
        code: int | None,
        error: ErrorRecord | None = None,
        at: float = 0.0,
    ) -> ProcessExit:
        state = failure_report.STOPPED if code is None and is_stopped(self.pid_of(spec)) else ""
        return ProcessExit(spec, self.pid_of(spec), code, self.log_of(spec), error, at, state)

    def others(self) -> list[ProcessExit]:
        """The processes that have not failed: those that have exited with 0, then those that run."""
        completed = [self._exit(spec, 0) for spec in self.completed if spec in self.started]
        return completed + [self._exit(spec, None) for spec in self.still_running()]

    def still_running(self) -> list[ProcessSpec]:
        """The processes that run and have not failed, in order."""
        known = {failure.spec for failure in self.failures}
        return sorted(self.running - known, key=lambda spec: (spec.role, spec.rank))

    def terminate(self, specs: Collection[ProcessSpec]) -> None:
        """Send SIGTERM to these processes and their children; servers of a job with a grace period get SIGINT, too."""
        self._terminated.update(specs)
        for spec in specs:
            kill_group(self.pid_of(spec), signal.SIGTERM)
            if spec.role == "server" and self.config.grace_s is not None:
                kill_group(self.pid_of(spec), signal.SIGINT)  # SIGTERM may preempt: runtime/server_loop.py
            kill_group(self.pid_of(spec), signal.SIGCONT)  # a stopped process would not handle SIGTERM

    def shut_down(self) -> None:
        """Terminate all running processes, and what exited ones have left behind, in any session."""
        self.terminate(self.running)
        self.wait_for_all(GRACE_S)
        for spec in self.started:
            kill_group(self.pid_of(spec), signal.SIGKILL)
        self.wait_for_all(1.0)
        for spec in list(self.started):
            if spec not in self.running:
                self.kill_and_reap(spec)
        for spec in self.running:
            logger.warning(
                "%s (pid %d) does not exit after SIGKILL: it is blocked in the kernel",
                spec.name,
                self.pid_of(spec),
            )
        kill_children(keep=[self.pid_of(spec) for spec in self.running])

    def kill_and_reap(self, spec: ProcessSpec) -> None:
        """Kill the rest of the process group of an exited process, and reap it."""
        kill_group(self.pid_of(spec), signal.SIGKILL)
        self.started.pop(spec).wait()

    def reap_adopted(self, now: float) -> None:
        """Reap zombies among the processes that the launcher has adopted because their parents exited."""
        if now - self._reaped_at >= REAP_S:
            self._reaped_at = now
            reap_children(keep=[process.pid for process in self.started.values()])

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait until no process runs, the timeout, or a second Ctrl-C."""
        until = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until:
            event = self.next_event(until - time.monotonic())
            if isinstance(event, SignalEvent):
                self.signal = self.signal or event.number
                if event.number == signal.SIGINT:
                    return  # a second Ctrl-C: do not wait

    def drain(self, tee: Tee) -> None:
        """Copy the rest of the logs to stdout; waits for a slow reader, but at most 2 s if the job failed."""
        until = time.monotonic() + (2.0 if self.failures or self.signal else float("inf"))
        while not tee.finish(timeout_s=0.1) and time.monotonic() < until:
            if isinstance(self.next_event(0.0), SignalEvent):
                return


class StoppedProcesses:
    """Warns once about each stopped process, with the command that resumes it."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._since: dict[ProcessSpec, float] = {}
        self._warned: set[ProcessSpec] = set()
        self._checked_at = 0.0

    def check(self, now: float) -> None:
        """Check all processes, at most every STATE_S."""
        if now - self._checked_at < STATE_S:
            return
        self._checked_at = now
        for spec in self._processes.running:
            pid = self._processes.pid_of(spec)
            if not is_stopped(pid):
                self._since.pop(spec, None)
                self._warned.discard(spec)
            elif now - self._since.setdefault(spec, now) >= STOPPED_S and spec not in self._warned:
                self._warned.add(spec)
                logger.warning(
                    "%s (pid %d) is stopped, the others wait for it; resume it with: kill -CONT %d",
                    *(spec.name, pid, pid),
                )


def is_stopped(pid: int) -> bool:
    """True if a process is stopped, by a signal or a debugger."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False
