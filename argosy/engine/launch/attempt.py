"""One attempt to run the ranks of this host: start them, supervise them, terminate them.

start ──▶ supervise ──▶ all exited with 0                                   done
                   ├──▶ one failed, 0.5 s for others of the same cause ──▶ report, terminate: TERM, 2 s, KILL
                   └──▶ a signal to the launcher ────────────────────────▶ terminate; with --grace: preemption.py
"""

# SPDX-License-Identifier: Apache-2.0
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from argosy.engine.launch import failure_report
from argosy.engine.launch.console import logger
from argosy.engine.launch.failure_report import ProcessExit
from argosy.engine.launch.job_record import Place
from argosy.engine.launch.processes import (
    COLLECT_S,
    POLL_S,
    ExitEvent,
    Processes,
    SignalEvent,
    StoppedProcesses,
)
from argosy.engine.launch.rank_env import RankPlacement
from argosy.engine.launch.tee import Tee
from argosy.engine.net import host_of

COLLECT_CAUSE_S = 1.5
"""Replaces COLLECT_S while all failed ranks only lost another rank, whose exit has not been seen yet."""
PUBLISH_S = 3.0
"""On several hosts: how long a rank that has raised may take to publish it to the others, which poll every second."""
EARLY_EXIT_S = 30.0


@dataclass(kw_only=True)
class Attempt(Processes):
    """The ranks of one attempt, and how they ended."""

    placement: RankPlacement
    on_failure: Callable[["Attempt"], None]
    """Called when the cause of a failure is known, before the other ranks are terminated, which may take a while."""
    restart: int = 0
    hosts: tuple[str, ...] = ()
    """The host of every rank of the job, in their order; none: this host starts all that are known."""
    began: float = 0.0
    first_failure: float = float("inf")
    culprit: int = -1
    """The rank that `on_failure` has reported."""

    def run(self) -> None:
        """Block until no process of the job is left; the fields hold the result."""
        self.began = time.monotonic()
        try:
            self._start_all()
            tee = Tee(self._shown())
            self._supervise()
            if self.grace.has_failed(bool(self.failures), bool(self.running)):
                self.signal = self.signal or signal.SIGTERM
            if self.failures:
                self.on_failure(self)
                self._let_failed_ranks_exit()
        finally:
            self.shut_down()
        self.drain(tee)

    def local_rank(self, rank: int) -> int:
        """The local rank of a rank of this host."""
        return next(r.local_rank for r in self.placement.ranks if r.rank == rank)

    def _places(self) -> list[Place]:
        return [Place("rank", rank, host) for rank, host in enumerate(self.hosts)]

    def _shown(self) -> list[tuple[str, str]]:
        first = () if self.node else self.placement.ranks[:1]  # node 0 shows rank 0
        ranks = self.placement.ranks if self.config.tee else first
        return [("" if i == 0 else f"[{r.name}] ", self.log_of(r)) for i, r in enumerate(ranks)]

    def _start_all(self) -> None:
        store = self.placement.store
        try:
            self.record.start(self._places(), self.restart)
            for rank in self.placement.ranks:
                has_store = store is not None and "ARGOSY_STORE_FD" in rank.environ
                self.start(rank, (store.fileno(),) if store is not None and has_store else ())
            self.record.write()
        finally:
            if store is not None:
                store.close()  # rank 0 has inherited it

    def _supervise(self) -> None:
        warnings = _Warnings(self)
        until = float("inf")
        while self.running and not self.is_ended and time.monotonic() < min(until, self.grace.until):
            event = self.next_event(min(POLL_S, until - time.monotonic()))
            if isinstance(event, SignalEvent):
                if not self.grace.begin(event.number, map(self.pid_of, self.running)):
                    self.signal = event.number
            elif isinstance(event, ExitEvent):
                self._record_exit(event)
            for failure in self.new_errors():
                if not self.grace.is_requeue(failure):
                    self._record_failure(failure)
            if self.failures:
                certain = failure_report.cause(self.failures, self.others()).is_certain
                until = self.first_failure + (COLLECT_S if certain else COLLECT_CAUSE_S)
            warnings.check()

    def _let_failed_ranks_exit(self) -> None:
        """Give a failed rank time to publish the reason to ranks of other hosts; on one host the report has it."""
        if len({host_of(endpoint) for endpoint in self.placement.endpoints}) == 1:
            return
        failed = {failure.spec for failure in self.failures}
        until = time.monotonic() + PUBLISH_S
        while self.running & failed and not self.is_ended and time.monotonic() < until:
            event = self.next_event(until - time.monotonic())
            if isinstance(event, SignalEvent):
                self.signal = event.number

    def _record_exit(self, event: ExitEvent) -> None:
        exit = self.exit_of(event)
        if exit.code == 0 and exit.error is None:
            self.completed.append(event.spec)
        elif self.grace.is_requeue(exit):
            pass
        elif self.grace.was_terminated(exit):
            self.signal = signal.SIGTERM
        elif all(failure.spec is not event.spec for failure in self.failures):
            self._record_failure(exit)

    def _record_failure(self, failure: ProcessExit) -> None:
        self.failures.append(failure)
        self.first_failure = min(self.first_failure, time.monotonic())


class _Warnings:
    """Warns once about what blocks a job: a stopped rank, ranks that exited long before the others."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._stopped = StoppedProcesses(attempt)
        self._completed_at: float | None = None

    def check(self) -> None:
        now = time.monotonic()
        self._attempt.reap_adopted(now)
        self._stopped.check(now)
        self._check_early_exits(now)

    def _check_early_exits(self, now: float) -> None:
        if not self._attempt.completed:
            return
        if self._completed_at is None:
            self._completed_at = now
        if now - self._completed_at >= EARLY_EXIT_S:
            self._completed_at = float("inf")  # once
            exited = sorted(r.rank for r in self._attempt.completed)
            running = sorted(r.rank for r in self._attempt.running)
            logger.warning(
                "ranks %s exited with code 0 more than %g s ago; ranks %s still run",
                exited,
                EARLY_EXIT_S,
                running,
            )
