"""Steps that all trainers do together: what each sends waits in a round, until all have sent theirs.

    push ─┐
    push ─┼─▶ round 7 ─▶ every trainer that is waited for has sent all? ─▶ apply ─▶ answer them, release what waits
    barrier ─┘

An update runs without the lock: it may wait for other servers, and these for trainers that want an answer from this
one. Messages of other steps are answered, held or refused by where they belong.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.server.held import Handle, Held
from argosy.engine.ps.server.members import Members, named
from argosy.engine.ps.server.rounds import Contribution, Round
from argosy.engine.ps.server.state import State

Failed = Callable[[str], None]


class Steps:
    """The step under way, and how many are done."""

    def __init__(
        self,
        plan: Plan,
        members: Members,
        held: Held,
        lock: threading.RLock,
        state: State,
        failed: Failed,
    ) -> None:
        """`failed` is told why a step cannot be done."""
        self.done = 0
        """sync and half_async: steps of all trainers together; async: the sum over the trainers."""
        self._plan, self._members, self._held, self._lock = plan, members, held, lock
        self._state, self._failed = state, failed
        self._round = Round(1)
        self._applied: Round | None = None
        """The one whose update runs."""

    def handlers(self) -> dict[str, Handler]:
        return {"barrier": Handler("send", self._barrier), "pause": Handler("send", self._pause)}

    def begin_at(self, done: int) -> None:
        """So many steps have been done, in a former life of this server."""
        self.done, self._round = done, Round(done + 1)

    def next_of(self, trainer: int) -> int:
        """The step that a trainer is to send next: anew what it has not completed, maybe in a former life."""
        if not self._plan.is_in_step:
            return 1
        self._round.forget(trainer)
        return self._round.step + (1 if self._round.has_all_of(trainer) else 0)

    def contribute(self, step: int, request: Request, add: Callable[[Contribution], None]) -> None:
        """Add to what a trainer has sent of a step; the request is answered when the step is done."""
        with self._lock:
            self._members.check(request)
            if self._members.is_outdated(request):  # the trainer has begun the step anew
                request.answer()
                return
            if self._is_elsewhere(step, request, lambda held: self.contribute(step, held, add)):
                return
            overtaken = None if step == self._round.step else self._round
            if overtaken is not None:  # half_async: a snapshot may be older than what trainers have done
                self.begin_at(step - 1)
            mine = self._round.of(request.trainer, request.client)
            add(mine)
            mine.waiting.append(request)
        if overtaken is not None:
            for one in overtaken.waiting():
                one.answer({"steps": self.done})
            self._held.release()
        self.advance()

    def _is_elsewhere(self, step: int, request: Request, handle: Handle) -> bool:
        """True: the step is not the one under way, and the message has been dealt with."""
        current = self._round.step
        if step <= self.done:  # done before, in another life of the trainer or of this server
            request.answer({"steps": self.done})
        elif step < current:  # being done
            self._held.when(step, request, handle)
        elif step == current:
            return False
        elif step == current + 1 and self._round.has_all_of(request.trainer):
            self._held.when(current, request, handle)  # it was begun anew after it had sent all
        elif self._plan.mode == "half_async":
            return False
        else:
            raise ConfigError(
                f"{request.who} sends step {step}, and this server has done {self.done}: it was started anew without "
                "its state; let fleetrun keep it (--max_restarts or --server_state), or start the whole job anew"
            )
        return True

    def _barrier(self, request: Request) -> None:
        message = read(messages.Barrier, request.meta)

        def note(mine: Contribution) -> None:
            mine.wanted = message.pushes

        self.contribute(message.step, request, note)

    def check(self, request: Request) -> None:
        """Raise if a gradient must not be applied."""
        if self._plan.mode == "half_async":
            self._members.check(request)

    def applied(self, step: int, request: Request) -> None:
        """A push was applied at once: answer it; under half_async when the step of all trainers is done."""

        def note(mine: Contribution) -> None:
            mine.pushes += 1

        if self._plan.mode == "half_async":
            self.contribute(step, request, note)
        else:
            request.answer({"steps": self.done})

    def count(self, steps: int) -> None:
        """async: a trainer has done so many more."""
        if self._plan.mode == "async":
            with self._lock:
                self.done += steps

    def _pause(self, request: Request) -> None:
        """Answered when the trainer is back, so that a server that is started anew is told again."""
        read(messages.Pause, request.meta)
        with self._lock:
            self._members.pause(request)
        self.advance()

    def drop(self, trainer: int) -> None:
        """Nobody waits for this trainer any more."""
        with self._lock:
            self._members.live.discard(trainer)
            self._round.forget(trainer)
        self.advance()

    def advance(self) -> None:
        """Do the step if everybody has sent all of it; to be called without the lock."""
        while True:
            with self._lock:
                if self._applied is not None or not self._round.is_ready(self._members.waited_for()):
                    return
                finished, self._round = self._round, Round(self._round.step + 1)
                self._applied = finished
            try:
                if self._plan.mode == "sync":
                    update = finished.update()
                    self._state.apply(update)
                    self._state.record(update)
            except Exception as e:
                logger.exception("step %d failed", finished.step)
                self._failed(f"step {finished.step} failed: {type(e).__name__}: {e}")
                return
            with self._lock:
                self._applied, self.done = None, max(self.done, finished.step)
            for request in finished.waiting():
                request.answer({"steps": self.done})
            self._held.release()

    @property
    def is_applying(self) -> bool:
        """True while an update runs."""
        return self._applied is not None

    def tell(self) -> None:
        """Say to those who wait for whom, or for what."""
        late = f"waits for {named(self._round.missing(self._members.waited_for()))}"
        for request in [*self._round.waiting(), *self._held.requests()]:
            request.tell(late if self._state.is_initialised else "waits for the first values")
        if self._applied is not None:
            for request in self._applied.waiting():
                request.tell(f"step {self._applied.step} is being done")

    def requests(self) -> list[Request]:
        """Of all who wait."""
        under_way = self._applied.waiting() if self._applied is not None else []
        return [*under_way, *self._round.waiting(), *self._held.requests()]
