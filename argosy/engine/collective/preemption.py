"""Preemption: all processes of a job stop at the same step boundary, although only some of them were signalled.

    rank 0   ── step 7 ──┤ boundary 7: waits ────────┤ step 8 ──┤ boundary 8: stops
    rank 1   ── step 7 ──┤ step 8, in a collective ─────────────┤ boundary 8: stops
                 ▲ SIGTERM           ▲ rank 1 learns of the request, and publishes the boundary after its step: 8

Boundary n is after n steps. A rank that knows of the request publishes the next boundary that it reaches, and does not
begin another step before all ranks have published theirs; all stop at the maximum. This cannot deadlock: if a rank
waits in a collective for one that waits at a boundary, its own boundary is later, and the other runs on to it.

A background thread learns of the request, once a second, and publishes; so a rank that is blocked in a collective
publishes, too. A boundary without a request takes an uncontended lock, and no communication.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import select
import sys
import threading
import time
from typing import Protocol

from argosy.engine.collective.rank_liveness import exited_error
from argosy.engine.collective.world import World
from argosy.engine.errors import ArgosyError
from argosy.engine.log import NOTICE, logger

NEVER = sys.maxsize
"""The boundary to stop at if another process has finished the training: this one finishes it, too."""
_PERIOD_S = 1.0
"""How often a process asks whether another one was signalled."""
_DECISION_S = 0.02
"""How often it asks for the decision."""


class PreemptionChannel(Protocol):
    """How the processes of a job agree on a boundary; called by one background thread."""

    def is_requested(self) -> bool:
        """Whether a process has published its boundary."""

    def publish(self, boundary: int) -> None:
        """Publish the next boundary of this process."""

    def decision(self) -> int | None:
        """The maximum over all processes; None until all have published, NEVER if one has finished."""


class SingleProcess:
    """The channel of a process without others."""

    def __init__(self) -> None:
        self._boundary: int | None = None

    def is_requested(self) -> bool:
        return False

    def publish(self, boundary: int) -> None:
        self._boundary = boundary

    def decision(self) -> int | None:
        return self._boundary


class StoreChannel:
    """The ranks of a collective job agree on a boundary through the job's store."""

    def __init__(self, world: World) -> None:
        assert world.store is not None, "a single rank has no store"
        self._rank, self._monitor = world.rank, world.monitor
        self._keys = [f"preemption/{rank}" for rank in range(world.size)]
        # A separate connection: requests of the main thread may block for long.
        self._store = world.store.clone()  # type: ignore[attr-defined]  # not in the stubs

    def is_requested(self) -> bool:
        return bool(self._store.check(["preemption/requested"]))

    def publish(self, boundary: int) -> None:
        self._store.set(self._keys[self._rank], str(boundary))
        self._store.set("preemption/requested", "")

    def decision(self) -> int | None:
        if self._store.check(self._keys):
            return max(int(self._store.get(key)) for key in self._keys)
        for rank, status in self._monitor.poll().items():
            if status.outcome and not self._store.check([self._keys[rank]]):
                if status.outcome != "done":
                    raise exited_error(self._monitor, rank, "preemption", status)
                return NEVER
        return None


class Preemption:
    """The step boundaries of this process, and the one at which it stops."""

    def __init__(self, channel: PreemptionChannel) -> None:
        self._channel = channel
        self._changed = threading.Condition()
        self._boundary = 0
        """Boundaries that this process has reached."""
        self.is_requested = False
        """True once this process knows that the job is to stop."""
        self._stop_at: int | None = None
        self._error: Exception | None = None
        self._signalled = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="argosy-preemption", daemon=True)
        self._thread.start()

    def request(self) -> bool:
        """Let all processes of the job stop; False if this one has lost the others. A signal handler may call it."""
        if not self.is_requested and not self._thread.is_alive():
            return False
        os.eventfd_write(self._signalled, 1)
        return True

    def at_boundary(self) -> bool:
        """Called between two steps, equally often by all processes; True at the boundary at which all of them stop.

        Raises if another process has failed since the request.
        """
        with self._changed:
            self._boundary += 1
            while self.is_requested and self._stop_at is None and self._error is None:
                self._changed.wait()
            if self.is_requested and self._error is not None:
                raise self._error
            return self._stop_at is not None and self._boundary >= self._stop_at

    def _run(self) -> None:
        try:
            self._await_request()
            with self._changed:  # from here on `at_boundary` waits for the decision
                self.is_requested = True
                boundary = self._boundary + 1
            self._channel.publish(boundary)
            logger.log(NOTICE, "preemption: the job stops at a step boundary, to save a checkpoint")
            while (stop_at := self._channel.decision()) is None:
                time.sleep(_DECISION_S)
            with self._changed:
                self._stop_at = stop_at
                self._changed.notify_all()
        except (ArgosyError, RuntimeError) as e:  # RuntimeError: of torch.distributed, when the store is lost
            with self._changed:
                self._error = e
                self._changed.notify_all()

    def _await_request(self) -> None:
        poller = select.poll()  # unlike select.select, it has no limit of descriptors
        poller.register(self._signalled, select.POLLIN)
        while not poller.poll(_PERIOD_S * 1000):
            if self._channel.is_requested():
                return
