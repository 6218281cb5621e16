"""A job with parameter servers on this host: a failed process is restarted alone, and servers are terminated last.

start ──▶ supervise ──▶ all workers exited with 0 ──────────────▶ servers: TERM, 10 s, KILL      done
             ▲ ├──▶ one failed, restarts are left ──▶ restart it, at its endpoint
             └─┼────────────────────────────────────┘
               ├──▶ a worker failed, no restart is left, --dead_worker=drop ──▶ continue without it
               ├──▶ else: 0.5 s for others of the same cause ──▶ report, terminate all: TERM, 2 s, KILL
               └──▶ a signal to the launcher ──────────────────▶ terminate all; with --grace: preemption.py

On several hosts a launcher cannot know when the workers of the others have exited: there servers exit by themselves,
when all workers have left the job.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from argosy.engine.errors import ConfigError
from argosy.engine.launch import console, failure_report, logs
from argosy.engine.launch.console import logger
from argosy.engine.launch.failure_report import ProcessExit
from argosy.engine.launch.guard import kill_group, signal_name
from argosy.engine.launch.job_record import Place
from argosy.engine.launch.processes import (
    COLLECT_S,
    GRACE_S,
    POLL_S,
    ExitEvent,
    Processes,
    SignalEvent,
    StoppedProcesses,
)
from argosy.engine.launch.ps_env import PsLayout
from argosy.engine.launch.rank_env import ProcessSpec, table
from argosy.engine.launch.tee import Tee
from argosy.engine.net import host_of

SERVER_GRACE_S = 10.0
"""Between TERM and KILL for servers whose workers have all exited: they may have to write their state."""
EARLY_SERVER_S = 3.0
"""A server that exited with 0 was perhaps stopped by the workers, which then exit within this time."""


def run(job: "PsJob") -> int:
    """Run a job until it ends; returns the launcher's exit code."""
    if job.layout.state is not None:
        _prepare_state(job.layout.state, keep=job.config.server_state is not None)
    with contextlib.suppress(FileNotFoundError):
        os.remove(job.layout.dead_workers)  # of another job
    job.log_start()
    job.run()
    if (code := job.grace.exit_code(job.signal, bool(job.failures))) is not None:
        return code
    if job.signal is not None:
        logger.warning("%s: all servers and workers were terminated", signal_name(job.signal))
        return 128 + job.signal
    if job.verdict is not None:
        return job.verdict.code
    if not job.failures:
        logger.info("Local processes completed.")
        return 0
    failed = failure_report.names([failure.spec for failure in job.failures])
    if job.continued:
        logger.error("%s failed, so the exit code is 1; the others continued (--dead_worker=drop)", failed)
    elif job.on_failure is None:
        logger.error("ABORT!!! %s failed. Please check the log.", failed)
    return 1


def _prepare_state(path: str, keep: bool) -> None:
    """Create the directory; delete the state of another job, unless `keep`: the user resumes from it."""
    try:
        if not keep and os.path.exists(path):
            shutil.rmtree(path)
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise ConfigError(
            f"servers cannot store their state in {path} ({e.strerror}); choose another directory with --server_state"
        ) from e


@dataclass(kw_only=True)
class PsJob(Processes):
    """The servers and workers of this host; `failures` are those that were not restarted."""

    layout: PsLayout
    on_failure: Callable[["PsJob", str], None] | None = None
    """In a job of several launchers: gets the report of the failure that ends the job, instead of the console."""
    restarts: Counter[str] = field(default_factory=Counter)
    """By name: how often a process was restarted."""
    _early: dict[ProcessSpec, float] = field(default_factory=dict)
    """Servers that exited with 0, and the deadline of the workers to exit, too."""
    _failing: dict[ProcessSpec, float] = field(default_factory=dict)
    """Processes that have written an error file, and the deadline to exit by themselves."""
    _abort_at: float = float("inf")
    _tee: Tee | None = None
    _prefixes: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Block until no process of the job is left on this host."""
        try:
            self._start_all()
            self._prefixes = self._shown()
            self._tee = Tee([(prefix, log) for log, prefix in self._prefixes.items()])
            self._supervise()
            if self.grace.has_failed(bool(self.failures), self._is_needed()):
                self.signal = self.signal or signal.SIGTERM
            if self.failures and not self.continued:
                self.print_report(self.failures, self.still_running())
            if not self.is_ended and not self._is_aborting:
                self._stop_servers()
            if self.failures and self.continued:
                self.print_report(self.failures, [])
        finally:
            self.shut_down()
        self.drain(self._tee)

    def log_start(self) -> None:
        """Log the tables of Paddle's launcher."""
        for role in ("server", "worker"):
            if specs := self.layout.processes(role):
                logger.info(
                    "Local %s start %d processes. First process distributed environment info (Only For Debug): %s",
                    *(role, len(specs), table(specs[0])),
                )
        lists = {
            "PADDLE_PSERVERS_IP_PORT_LIST": self.layout.servers,
            "PADDLE_TRAINER_ENDPOINTS": self.layout.workers,
        }
        where = self.config.log_dir
        logger.info(
            "Please check servers and workers logs in %s/workerlog.* and %s/serverlog.*, endpoints in %s",
            *(where, where, logs.write_endpoints(where, lists)),
        )

    def print_report(self, failures: list[ProcessExit], terminated: list[ProcessSpec]) -> None:
        """Print why these failed, and which processes are terminated for that."""
        others = self.others()
        size = len(self.layout.endpoints(failure_report.cause(failures, others).exit.spec.role))
        text = failure_report.text(failures, size, terminated, others)
        self.record.failed(
            text, failure_report.cause(failures, others), failures, is_end=failures is self.failures
        )
        if self.on_failure is not None and self._is_aborting:
            self.on_failure(self, text)
        else:
            console.print_block(text, logs.launcher_log(self.config.log_dir))

    def _start_all(self) -> None:
        self.record.start(self._places())
        for spec in (*self.layout.processes("server"), *self.layout.processes("worker")):
            self.start(spec)
        self.record.write()

    def _places(self) -> list[Place]:
        """All processes of the job on node 0, those of this host on others."""
        this, local = socket.gethostname(), self.layout.local
        return [
            Place(role, rank, this if endpoint in local else host_of(endpoint))
            for role in ("server", "worker")
            for rank, endpoint in enumerate(self.layout.endpoints(role))
            if endpoint in local or not self.node
        ]

    def _shown(self) -> dict[str, str]:
        """By log that is copied to the console, its prefix: only the first worker's, or all."""
        specs = sorted(self.running, key=lambda spec: (spec.role != "worker", spec.local_rank))
        if not self.config.tee:
            return {} if self.node else {self.log_of(spec): "" for spec in specs[:1]}
        return {self.log_of(spec): f"[{spec.name}] " for spec in specs}

    @property
    def continued(self) -> bool:
        """True if the failed workers were dropped, and others continued."""
        others = self.layout.several_hosts or any(spec.role == "worker" for spec in self.completed)
        return others and not self._is_aborting

    @property
    def _is_aborting(self) -> bool:
        return self._abort_at < float("inf")

    def _running(self, role: str) -> list[ProcessSpec]:
        return [spec for spec in self.running if spec.role == role]

    def _is_active(self) -> bool:
        if self.is_ended or time.monotonic() >= min(self._abort_at, self.grace.until):
            return False
        return self._is_needed()

    def _is_needed(self) -> bool:
        """True if a process of this host has something to do."""
        if self._running("worker"):
            return True
        # Workers of other hosts may still need the servers of this one.
        return bool(self.running) and self.layout.several_hosts

    def _supervise(self) -> None:
        stopped = StoppedProcesses(self)
        while self._is_active():
            event = self.next_event(min(POLL_S, self._abort_at - time.monotonic()))
            if isinstance(event, SignalEvent):
                # Servers forward it to the workers of other hosts, if this host has none.
                specs = self._running("worker") or self._running("server")
                if not self.grace.begin(event.number, map(self.pid_of, specs)):
                    self.signal = event.number
            elif isinstance(event, ExitEvent):
                self._record_exit(event)
            self._check_early_servers()
            self._check_error_files()
            stopped.check(time.monotonic())
            self.reap_adopted(time.monotonic())

    def _check_error_files(self) -> None:
        """Kill processes that have raised and do not exit, unless the whole job is aborted anyway."""
        for failure in self.new_errors():
            if self.grace.is_requeue(failure):
                continue
            until = self._failing.setdefault(failure.spec, time.monotonic() + GRACE_S)
            if not self._can_restart and not self._can_drop(failure.spec):
                self._failing.pop(failure.spec)
                self.failures.append(failure)
                self._abort()
            elif time.monotonic() >= until:
                kill_group(self.pid_of(failure.spec), signal.SIGKILL)

    def _record_exit(self, event: ExitEvent) -> None:
        if any(failure.spec is event.spec for failure in self.failures):
            return  # recorded by its error file before it exited
        if self.grace.is_requeue(self.exit_of(event)):
            self.completed.append(event.spec)
        elif event.spec.role == "worker" and self.grace.was_terminated(self.exit_of(event)):
            self.signal = signal.SIGTERM
        elif event.code:
            self._record_failure(event)
        elif event.spec.role == "server" and self._running("worker"):
            self._early[event.spec] = time.monotonic() + EARLY_SERVER_S
        else:
            self.completed.append(event.spec)

    def _check_early_servers(self) -> None:
        for spec, until in list(self._early.items()):
            if not self._running("worker"):
                self.completed.append(spec)
            elif time.monotonic() >= until:
                self._record_failure(ExitEvent(spec, 0, time.time()))
            else:
                continue
            del self._early[spec]

    def _record_failure(self, event: ExitEvent) -> None:
        failure = self.exit_of(event)
        if self._failing.pop(event.spec, None) is not None and failure.error is not None:
            # _check_error_files may have killed it: report the exit code of the script.
            failure = replace(failure, code=failure.error.exit_code)
        self.kill_and_reap(event.spec)
        if self._can_restart:
            self._restart(failure)
            return
        self.failures.append(failure)
        if not (self._can_drop(event.spec) and self._drop(failure)):
            self._abort()

    def _drop(self, failure: ProcessExit) -> bool:
        """Report to the servers that this worker does not return; False if the report cannot be written."""
        path = self.layout.dead_workers
        try:
            with open(path, "a") as file:
                file.write(f"{failure.spec.rank}\n")
        except OSError as e:
            logger.error("%s cannot be dropped: cannot write %s (%s)", failure.spec.name, path, e.strerror)
            return False
        logger.warning(
            "%s ended with %s (log: %s) and is dropped; the others continue (--dead_worker=drop)",
            *(failure.spec.name, failure, failure.log),
        )
        return True

    @property
    def _can_restart(self) -> bool:
        is_ending = self._is_aborting or self.grace.has_begun
        return self.restarts.total() < self.config.max_restarts and not is_ending

    def _can_drop(self, spec: ProcessSpec) -> bool:
        return spec.role == "worker" and self.config.dead_worker == "drop" and not self.grace.has_begun

    def _abort(self) -> None:
        self._abort_at = min(self._abort_at, time.monotonic() + COLLECT_S)

    def _restart(self, failure: ProcessExit) -> None:
        name, role = failure.spec.name, failure.spec.role
        self.print_report([replace(failure, log=logs.rotate_file(failure.log))], [])
        self.restarts[name] += 1
        spec = self.layout.process(role, failure.spec.rank, self.restarts[name])
        number, limit = self.restarts.total(), self.config.max_restarts
        self.record.restarted(f"restart {number} of {limit}: {name} ended with {failure}", number, spec)
        logger.warning(
            "restart %d of %d: %s ended with %s and is restarted at %s; its log is now %s.1",
            *(number, limit, name, failure),
            *(self.layout.endpoints(role)[failure.spec.rank], failure.log),
        )
        self.start(spec)
        self.record.write()
        assert self._tee is not None, "created before the first event is read"
        if failure.log in self._prefixes:
            self._tee.add(self._prefixes[failure.log], failure.log)

    def _stop_servers(self) -> None:
        """The workers have exited: terminate the servers, with time to write their state."""
        if not self.running:
            return
        logger.info("all workers exit, going to finish parameter server.")
        servers = self.still_running()
        self.terminate(servers)
        if (
            self.config.grace_s is not None
        ):  # SIGTERM preempts a server whose workers have not left: stop it by SIGINT
            self.wait_for_all(1.0)
            for server in self.running:
                kill_group(self.pid_of(server), signal.SIGINT)
        self.wait_for_all(SERVER_GRACE_S)
        if self.signal is not None:
            return  # a signal: the caller kills them
        for server in servers:
            if server in self.running:
                logger.warning(
                    "%s did not exit within %g s after SIGTERM; killing it", server.name, SERVER_GRACE_S
                )
                kill_group(self.pid_of(server), signal.SIGKILL)
            elif self.codes[server] not in (0, -signal.SIGTERM, self.config.requeued_with):
                logger.warning(
                    "%s exited with code %d after SIGTERM; log: %s",
                    *(server.name, self.codes[server], self.log_of(server)),
                )
        logger.info("all parameter server are killed")
