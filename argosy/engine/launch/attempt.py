"""One start of the ranks of this host: start them, watch them, end them.

start ──▶ watch ──▶ all ended with 0                                   done
               ├──▶ one failed, 0.5 s for others of the same cause ──▶ end: TERM, 2 s, KILL
               └──▶ a signal to the launcher ────────────────────────▶ end
"""

# SPDX-License-Identifier: Apache-2.0
import time
from dataclasses import dataclass

from argosy.engine.launch.layout import Placed
from argosy.engine.launch.mirror import Mirror
from argosy.engine.launch.processes import COLLECT_S, LOOK_S, Ended, Processes, Signalled, StoppedProcesses
from argosy.engine.launch.say import logger

COLLECT_CAUSE_S = 1.5
"""COLLECT_S while all that failed only lost another rank, which may still be on its way out."""
EARLY_END_S = 30.0


@dataclass(kw_only=True)
class Attempt(Processes):
    """The ranks of one start, and what has become of them."""

    placed: Placed
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
            self.end()
        self.finish(mirror)

    def _shown(self) -> list[tuple[str, str]]:
        ranks = self.placed.ranks if self.config.tee else self.placed.ranks[:1]
        return [("" if i == 0 else f"[{r.name}] ", self.log_of(r)) for i, r in enumerate(ranks)]

    def _start_all(self) -> None:
        store = self.placed.store
        try:
            for rank in self.placed.ranks:
                has_store = store is not None and "ARGOSY_STORE_FD" in rank.environ
                self.start(rank, (store.fileno(),) if store is not None and has_store else ())
        finally:
            if store is not None:
                store.close()  # from now on it is rank 0's alone
            for rank in self.running:
                self.watch(rank)

    def _watch(self) -> None:
        watcher = _Watcher(self)
        until = float("inf")
        while self.running and self.signal is None and time.monotonic() < until:
            event = self.next_event(min(LOOK_S, until - time.monotonic()))
            if isinstance(event, Signalled):
                self.signal = event.number
            elif isinstance(event, Ended) and event.code:
                self.note_failure(event)
                self.first_failure = min(self.first_failure, time.monotonic())
                only_lost = all(d.is_consequence for d in self.failures)
                until = self.first_failure + (COLLECT_CAUSE_S if only_lost else COLLECT_S)
            elif isinstance(event, Ended):
                self.completed.append(event.rank)
            watcher.look()


class _Watcher:
    """Says once what a user would wonder about: a stopped rank, ranks that ended long before the others."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._stopped = StoppedProcesses(attempt)
        self._completed_at: float | None = None
        self._looked_at = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._stopped.look(now)
        self._look_for_early_ends(now)

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
