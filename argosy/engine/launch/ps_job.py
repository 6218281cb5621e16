"""A job with parameter servers on this host: a process that fails is started anew alone, and servers end last.

start ──▶ watch ──▶ all workers ended with 0 ───────────────────▶ servers: TERM, 10 s, KILL      done
             ▲ ├──▶ one failed, restarts are left ──▶ start it anew, at its old endpoint
             └─┼────────────────────────────────────┘
               ├──▶ a worker failed, none is left, --dead_worker=drop ──▶ go on without it
               ├──▶ else: 0.5 s for others of the same cause ──▶ end all: TERM, 2 s, KILL
               └──▶ a signal to the launcher ──────────────────▶ end all

On several hosts a launcher cannot know when the workers of the others have ended: there servers end by
themselves, when all workers have taken leave of them.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs, report, say
from argosy.engine.launch.guard import kill_group
from argosy.engine.launch.layout import Rank, table
from argosy.engine.launch.mirror import Mirror
from argosy.engine.launch.processes import COLLECT_S, LOOK_S, Ended, Processes, Signalled, StoppedProcesses
from argosy.engine.launch.ps_layout import PsLayout
from argosy.engine.launch.report import Death
from argosy.engine.launch.say import logger

SERVER_GRACE_S = 10.0
"""Between TERM and KILL for servers whose workers have all ended: they may have a state to write."""
EARLY_SERVER_S = 3.0
"""A server that ended with 0 was perhaps told so by workers, which then end in this time."""


def run(job: "PsJob") -> int:
    """Run a job to its end; gives the launcher's exit code."""
    if job.layout.state is not None:
        _prepare_state(job.layout.state, keep=job.config.server_state is not None)
    with contextlib.suppress(FileNotFoundError):
        os.remove(job.layout.dead_workers)  # of another job
    job.say_start()
    job.run()
    if job.failures:
        job.say_report(job.failures, job.ended_by_us)
    if job.signal is not None:
        logger.warning("%s: all servers and workers have been ended", signal.Signals(job.signal).name)
        return 128 + job.signal
    if not job.failures:
        logger.info("Local processes completed.")
        return 0
    failed = report.names([d.rank for d in job.failures])
    if job.went_on:
        logger.error("%s failed, so the exit code is 1; the others went on (--dead_worker=drop)", failed)
    else:
        logger.error("ABORT!!! %s failed. Please check the log.", failed)
    return 1


def _prepare_state(path: str, keep: bool) -> None:
    """Make the directory; what another job has left there goes, unless the user has asked to go on from it."""
    try:
        if not keep and os.path.exists(path):
            shutil.rmtree(path)
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise ConfigError(
            f"servers cannot keep their state in {path} ({e.strerror}); name another directory with --server_state"
        ) from e


@dataclass(kw_only=True)
class PsJob(Processes):
    """The servers and workers of this host, and what has become of them; `failures` are the final ones."""

    layout: PsLayout
    restarts: Counter[str] = field(default_factory=Counter)
    """How often a process was started anew, by its name."""
    _early: dict[Rank, float] = field(default_factory=dict)
    """Servers that ended with 0, and until when the workers may follow them."""
    _give_up_at: float = float("inf")
    _mirror: Mirror | None = None
    _prefixes: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Returns when no process of the job is left on this host."""
        try:
            self._start_all()
            self._prefixes = self._shown()
            self._mirror = Mirror([(prefix, log) for log, prefix in self._prefixes.items()])
            self._watch()
            if self.signal is None and not self._must_end:
                self._end_servers()
        finally:
            self.end()
        self.finish(self._mirror)

    def say_start(self) -> None:
        """The tables of Paddle's launcher."""
        for role in ("server", "worker"):
            if found := self.layout.processes(role):
                logger.info(
                    "Local %s start %d processes. First process distributed environment info (Only For Debug): %s",
                    *(role, len(found), table(found[0])),
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

    def say_report(self, deaths: list[Death], ended_by_us: list[Rank]) -> None:
        size = len(self.layout.endpoints(report.cause(deaths).rank.role))
        say.block(report.text(deaths, size, ended_by_us), logs.own_log(self.config.log_dir))

    def _start_all(self) -> None:
        try:
            for rank in (*self.layout.processes("server"), *self.layout.processes("worker")):
                self.start(rank)
        finally:
            for rank in self.running:
                self.watch(rank)

    def _shown(self) -> dict[str, str]:
        """The logs that the console shows, and the prefix of each: the first worker's, or all."""
        ranks = sorted(self.running, key=lambda r: (r.role != "worker", r.local_rank))
        if not self.config.tee:
            return {self.log_of(ranks[0]): ""}
        return {self.log_of(r): f"[{r.name}] " for r in ranks}

    @property
    def went_on(self) -> bool:
        """True: who failed was dropped, and other workers have gone on."""
        others = self.layout.several_hosts or any(rank.role == "worker" for rank in self.completed)
        return others and not self._must_end

    @property
    def _must_end(self) -> bool:
        return self._give_up_at < float("inf")

    def _runs(self, role: str) -> list[Rank]:
        return [r for r in self.running if r.role == role]

    def _goes_on(self) -> bool:
        if self.signal is not None or time.monotonic() >= self._give_up_at:
            return False
        if self._runs("worker"):
            return True
        # Workers of other hosts may still need the servers of this one.
        return bool(self.running) and self.layout.several_hosts

    def _watch(self) -> None:
        stopped = StoppedProcesses(self)
        while self._goes_on():
            event = self.next_event(min(LOOK_S, self._give_up_at - time.monotonic()))
            if isinstance(event, Signalled):
                self.signal = event.number
            elif isinstance(event, Ended):
                self._note_end(event)
            self._look_at_early_servers()
            stopped.look(time.monotonic())

    def _note_end(self, event: Ended) -> None:
        if event.code:
            self._note_failure(event)
        elif event.rank.role == "server" and self._runs("worker"):
            self._early[event.rank] = time.monotonic() + EARLY_SERVER_S
        else:
            self.completed.append(event.rank)

    def _look_at_early_servers(self) -> None:
        for rank, until in list(self._early.items()):
            if not self._runs("worker"):
                self.completed.append(rank)
            elif time.monotonic() >= until:
                self._note_failure(Ended(rank, 0))
            else:
                continue
            del self._early[rank]

    def _note_failure(self, event: Ended) -> None:
        death = self.note_failure(event)
        self.end_children(event.rank)
        if self.restarts.total() < self.config.max_restarts and not self._must_end:
            self.failures.remove(death)
            self._start_anew(death)
        elif event.rank.role == "worker" and self.config.dead_worker == "drop":
            with open(self.layout.dead_workers, "a") as file:
                file.write(f"{event.rank.rank}\n")
            logger.warning(
                "%s ended with %s (log: %s) and is dropped; the others go on (--dead_worker=drop)",
                *(event.rank.name, death, death.log),
            )
        else:
            self._give_up_at = min(self._give_up_at, time.monotonic() + COLLECT_S)

    def _start_anew(self, death: Death) -> None:
        name, role = death.rank.name, death.rank.role
        self.say_report([replace(death, log=logs.set_aside(death.log))], [])
        self.restarts[name] += 1
        again = self.layout.process(role, death.rank.rank, self.restarts[name])
        logger.warning(
            "restart %d of %d: %s ended with %s and is started anew at %s:%s; its log is now %s.1",
            *(self.restarts.total(), self.config.max_restarts, name, death),
            *(again.environ["POD_IP"], again.environ["PADDLE_PORT"], death.log),
        )
        self.start_beside_threads(again)
        assert self._mirror is not None, "it is there before the first event is read"
        if death.log in self._prefixes:
            self._mirror.add(self._prefixes[death.log], death.log)

    def _end_servers(self) -> None:
        """The workers have ended: servers have time to end by themselves."""
        if not self.running:
            return
        logger.info("all workers exit, going to finish parameter server.")
        told = dict(self.running)
        self.tell_to_end(told)
        self.wait_for_all(SERVER_GRACE_S)
        if self.signal is not None:
            return  # the user does not wait so long
        for rank, process in told.items():
            if rank in self.running:
                logger.warning("%s does not end %g s after SIGTERM; it is killed", rank.name, SERVER_GRACE_S)
                kill_group(self.pids[rank], signal.SIGKILL)
            elif process.returncode not in (0, -signal.SIGTERM):
                logger.warning(
                    "%s was told to end and did so with code %d; log: %s",
                    *(rank.name, process.returncode, self.log_of(rank)),
                )
        logger.info("all parameter server are killed")
