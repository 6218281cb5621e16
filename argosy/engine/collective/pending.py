"""A collective that was started: go on, and wait for it later.

A wait that takes long does not stay silent: it looks after the others every second (see watch.py) and ends
with an error that names the ranks that are missing, as soon as it is certain that they will not come.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from argosy.engine.collective.absent import look_after
from argosy.engine.collective.exchanges import Exchange
from argosy.engine.collective.host_plane import Idle
from argosy.engine.errors import CollectiveError
from argosy.engine.log import logger

if TYPE_CHECKING:
    from argosy.engine.collective.group import Group

_SLICE = timedelta(seconds=1)
_FIRST_NOTE_S = 30.0


class Pending:
    """A collective under way in the backend's thread; this one, `DONE`, is over already."""

    def wait(self) -> None:
        """Return when it is done; the tensors hold the result then. A second time returns at once."""


DONE = Pending()


class Started(Pending):
    """A collective of a group; a subclass says how to wait for it."""

    def __init__(self, group: Group, collective: str, what: str, nbytes: int) -> None:
        self.group, self.collective, self.what = group, collective, what
        self.number = group.next_number(what)
        self.exchange = group.note_start(collective, what, self.number, nbytes)
        self._is_over = False
        self._note_s = _FIRST_NOTE_S

    def wait(self) -> None:
        if self._is_over:
            return
        own, began = self.group.watch.own, time.perf_counter_ns()
        own.waiting = f"{self.group.name}#{self.number} {self.collective} {self.what}".rstrip()
        own.waiting_for = list(self.group.ranks)
        try:
            self._wait()
        finally:
            own.waiting = ""
            if self.exchange is not None:
                self.exchange.waited.append((began, time.perf_counter_ns()))
        self._is_over = True

    def _wait(self) -> None:
        raise NotImplementedError

    def _look(self, waited_s: float) -> None:
        """A second has passed: is it certain by now that somebody will not come?"""
        group = self.group
        here = group.described(self.collective, self.what)
        missing = group.missing(self.number)
        for rank in missing:
            look_after(group.watch, rank, here, waited_s, group.patience)
        if waited_s > self._note_s:
            names = ", ".join(map(str, missing)) or "(all have joined)"
            logger.warning("%s: waiting since %.0f s for rank %s", here, waited_s, names)
            self._note_s *= 2


class InBackend(Started):
    """Under way in a thread of the backend: gloo's or NCCL's."""

    def __init__(
        self, group: Group, collective: str, what: str, nbytes: int, start: Callable[[], Any]
    ) -> None:
        super().__init__(group, collective, what, nbytes)
        try:
            self._work = start()
        except RuntimeError as e:
            raise group.lost(collective, what, e) from None
        if self.exchange is not None:
            _note_end(self.exchange, self._work)

    def _wait(self) -> None:
        began = time.monotonic()
        while True:
            try:
                self._work.wait(_SLICE)
                return
            except RuntimeError as e:
                if "timed out" not in str(e).lower() or self._work.is_completed():
                    raise self.group.lost(self.collective, self.what, e) from None
            self._look(time.monotonic() - began)


class OnPlane(Started):
    """An exchange on the host plane. It happens in `wait`: there is no processor beside the ranks' own for it."""

    def __init__(
        self, group: Group, collective: str, what: str, nbytes: int, run: Callable[[Idle, int], str]
    ) -> None:
        super().__init__(group, collective, what, nbytes)
        self._run = run

    def _wait(self) -> None:
        group, began = self.group, time.monotonic()
        plane = group.plane
        assert plane is not None, self.collective

        def idle(place: int) -> None:
            rank = group.ranks[place]
            if plane.has_ended(place):
                gone = ConnectionError(f"the process of rank {rank} is gone")
                raise group.lost(self.collective, self.what, gone)
            waited_s = time.monotonic() - began
            self._look(waited_s)
            here = group.described(self.collective, self.what)
            look_after(group.watch, rank, here, waited_s, group.patience)  # started or not, it is not here

        if self.exchange is not None:
            self.exchange.began_ns = time.perf_counter_ns()
        if differing := self._run(idle, self.number):
            raise CollectiveError(
                f"{group.described(self.collective, self.what)}: {differing}; all ranks must exchange the same "
                "tensors in the same order"
            )
        if self.exchange is not None:
            self.exchange.ended_ns = time.perf_counter_ns()


class InOneBuffer(Pending):
    """Several tensors that travel in one buffer, which is copied back."""

    def __init__(self, started: Pending, flat: torch.Tensor, parts: list[torch.Tensor]) -> None:
        self._started: Pending | None = started
        self._flat, self._parts = flat, parts

    def wait(self) -> None:
        if self._started is None:
            return
        self._started.wait()
        self._started = None
        torch._foreach_copy_(self._parts, list(self._flat.split([part.numel() for part in self._parts])))


class Together(Pending):
    """Several at once."""

    def __init__(self, started: Sequence[Pending]) -> None:
        self._started = started

    def wait(self) -> None:
        for one in self._started:
            one.wait()


class AndThen(Pending):
    """One whose end lets another begin."""

    def __init__(self, first: Pending, then: Callable[[], Pending]) -> None:
        self._first, self._then = first, then
        self._is_over = False

    def wait(self) -> None:
        if not self._is_over:
            self._first.wait()
            self._then().wait()
            self._is_over = True


def _note_end(exchange: Exchange, work: Any) -> None:
    """The backend's thread says when it has done its work, which may be long before anybody waits for it."""

    def note(_: Any) -> None:
        exchange.ended_ns = time.perf_counter_ns()

    work.get_future().add_done_callback(note)
