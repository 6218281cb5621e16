"""All-gathers of parameters that a step has started, and that overlap with what follows.

    step n        … update of bucket 2 ─▶ all-gather starts                                      add
    between       whatever reads one of its parameters: a checkpoint, another program, …         wait_for
    step n + 1    the first node that reads one of its parameters                                wait_for
    end of job    other ranks may still receive from this one                                    finish

Until its all-gather is complete, a parameter has rows of two steps, so nothing may read or write it. An all-gather that
has failed leaves it so: every later access raises the same error, and no further collective may start.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from argosy.engine import process_effects
from argosy.engine.collective.rank_liveness import RankMonitor
from argosy.engine.collective.work import Work
from argosy.engine.errors import CollectiveError
from argosy.engine.log import logger


@dataclass(eq=False)
class _Gather:
    tensors: Sequence[torch.Tensor]
    work: Work
    error: CollectiveError | None = None


class PendingGathers:
    """The all-gathers in flight of one process, in the order in which they were started."""

    def __init__(self, monitor: RankMonitor) -> None:
        self._monitor = monitor
        self._pending: list[_Gather] = []
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, tensors: Sequence[torch.Tensor], work: Work) -> None:
        """Register a started all-gather, which writes these tensors."""
        process_effects.install("gathers-before-fork", self._complete_before_forks)
        with self._lock:
            self._pending.append(_Gather(tensors, work))

    def wait_for(self, tensors: Iterable[torch.Tensor] | None = None) -> None:
        """Block until no all-gather writes these tensors; None: until all are complete.

        Raises CollectiveError if one of them has failed, now or before.
        """
        if not self._pending:
            return
        wanted = None if tensors is None else {id(tensor) for tensor in tensors}
        with self._lock:
            for gather in list(self._pending):
                if wanted is None or any(id(tensor) in wanted for tensor in gather.tensors):
                    self._complete(gather)

    def finish(self) -> None:
        """At the end of the job: complete all of them, so that the other ranks receive what this one sends."""
        try:
            self.wait_for()
        except CollectiveError as e:
            logger.error("at the end of the job: %s", e)

    def _complete(self, gather: _Gather) -> None:
        if gather.error is None:
            try:
                gather.work.wait()
            except CollectiveError as e:
                gather.error = e
                self._monitor.failed_step = f"{type(e).__name__}: {e}"
        if gather.error is not None:
            raise gather.error
        self._pending.remove(gather)

    def _complete_before_forks(self) -> None:
        """Let child processes get complete parameters. A hook cannot be removed: it ends with this object."""
        reference = weakref.ref(self)

        def complete() -> None:
            if (gathers := reference()) is not None:
                with suppress(CollectiveError):  # raised again by the next access
                    gathers.wait_for()

        os.register_at_fork(before=complete)
