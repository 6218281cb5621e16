"""Work: a collective that was started, to be waited for later.

A long wait checks the other ranks every second (rank_liveness.py). It raises an error that names the missing ranks as
soon as it is certain that they will not join.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from argosy.engine.collective.rank_liveness import check_peer, check_store
from argosy.engine.collective.shm_collectives import OnWait
from argosy.engine.collective.trace import TracedCollective
from argosy.engine.errors import CollectiveError
from argosy.engine.log import logger
from argosy.engine.metrics import counters

if TYPE_CHECKING:
    from argosy.engine.collective.group import Group

_POLL_PERIOD = timedelta(seconds=1)
_FIRST_WARNING_S = 30.0


class Work:
    """A collective in flight. An instance of this base class, `COMPLETED`, has nothing to wait for."""

    def wait(self) -> None:
        """Block until it is complete; then the tensors hold the result. A second call returns at once."""


COMPLETED = Work()


class GroupWork(Work):
    """A collective of a process group; subclasses implement `_wait`."""

    def __init__(self, group: Group, collective: str, what: str, nbytes: int) -> None:
        self.group, self.collective, self.what = group, collective, what
        self.number = group.next_number(what)
        self.here = group.describe(collective, what)
        """For messages. With the step of the start: an all-gather of parameters is waited for in the next one."""
        self.traced = group.record_start(collective, what, self.number, nbytes)
        counters.sent_bytes += nbytes
        self._is_complete = False
        self._next_warning_s = _FIRST_WARNING_S

    def wait(self) -> None:
        if self._is_complete:
            return
        status, began = self.group.monitor.local, time.perf_counter_ns()
        status.waiting = f"{self.group.name}#{self.number} {self.collective} {self.what}".rstrip()
        status.waiting_for = self.group.range
        try:
            self._wait()
        finally:
            status.waiting, ended = "", time.perf_counter_ns()
            counters.exposed_ns += ended - began
            if self.traced is not None:
                self.traced.waited.append((began, ended))
        self._is_complete = True

    def _wait(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _wait; define how to wait for it")

    def _check_missing(self, waited_s: float, watched: Sequence[int] = ()) -> None:
        """Raise if a rank that has not started this collective will not join; log a warning now and then.

        `watched`: ranks to check although they may have started it.
        """
        group = self.group
        missing = group.missing(self.number, watched)
        for rank in dict.fromkeys((*missing, *watched)):
            check_peer(group.monitor, rank, self.here, waited_s, group.timeouts)
        check_store(group.monitor, self.here, group.timeouts)
        if waited_s > self._next_warning_s:
            names = ", ".join(map(str, missing)) or "(all have joined)"
            logger.warning("%s: waited %.0f s so far for rank %s", self.here, waited_s, names)
            self._next_warning_s *= 2


class BackendWork(GroupWork):
    """Runs in a thread of the backend: gloo's or NCCL's."""

    def __init__(
        self, group: Group, collective: str, what: str, nbytes: int, start: Callable[[], Any]
    ) -> None:
        super().__init__(group, collective, what, nbytes)
        try:
            self._work = start()
        except RuntimeError as e:
            raise group.backend_error(self.here, e) from None
        if self.traced is not None:
            _trace_end(self.traced, self._work)

    def is_done(self) -> bool:
        """True if `wait` would return at once."""
        return bool(self._work.is_completed())

    def _wait(self) -> None:
        began = time.monotonic()
        while True:
            try:
                self._work.wait(_POLL_PERIOD)
                return
            except RuntimeError as e:
                if "timed out" not in str(e).lower() or self._work.is_completed():
                    raise self.group.backend_error(self.here, e) from None
            self._check_missing(time.monotonic() - began)


class ShmWork(GroupWork):
    """A shared-memory collective. It runs inside `wait`: there is no core besides the ranks' to run it on."""

    def __init__(
        self, group: Group, collective: str, what: str, nbytes: int, run: Callable[[OnWait, int], str]
    ) -> None:
        super().__init__(group, collective, what, nbytes)
        self._run = run

    def _wait(self) -> None:
        group, began = self.group, time.monotonic()
        shm = group.shm
        assert shm is not None, self.collective

        def on_wait(index: int) -> None:
            rank = group.ranks[index]
            if shm.has_exited(index):
                raise group.process_exit_error(self.here, rank)
            # It may have started the collective without having reached the barrier.
            self._check_missing(time.monotonic() - began, watched=[rank])

        if self.traced is not None:
            self.traced.began_ns = time.perf_counter_ns()
        if mismatch := self._run(on_wait, self.number):
            raise CollectiveError(
                f"{self.here}: {mismatch}; all ranks must start the same collectives on the same tensors in the same "
                "order"
            )
        if self.traced is not None:
            self.traced.ended_ns = time.perf_counter_ns()


class Coalesced(Work):
    """A collective on several tensors, concatenated in one buffer that is copied back."""

    def __init__(self, work: Work, flat: torch.Tensor, parts: list[torch.Tensor]) -> None:
        self._work: Work | None = work
        self._flat, self._parts = flat, parts

    def wait(self) -> None:
        if self._work is None:
            return
        self._work.wait()
        self._work = None
        torch._foreach_copy_(self._parts, list(self._flat.split([part.numel() for part in self._parts])))


class AllOf(Work):
    """Several collectives in flight; complete when all of them are."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


class Then(Work):
    """A collective, and a second one that is started when the first is complete."""

    def __init__(self, first: Work, start_second: Callable[[], Work]) -> None:
        self._first, self._start_second = first, start_second
        self._is_complete = False

    def wait(self) -> None:
        if not self._is_complete:
            self._first.wait()
            self._start_second().wait()
            self._is_complete = True


def _trace_end(traced: TracedCollective, work: Any) -> None:
    """Record the end from the backend's thread: it may be long before the main thread waits for it."""

    def record(_: Any) -> None:
        traced.ended_ns = time.perf_counter_ns()

    work.get_future().add_done_callback(record)
