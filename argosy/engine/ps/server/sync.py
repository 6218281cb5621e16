"""Pushes, and the steps that all trainers do together (sync, half_async): a step waits for all live trainers.

    push ────┐
    push ────┼─▶ round 7 ─▶ complete for all active trainers? ─▶ apply ─▶ log ─▶ reply, release deferred
    barrier ─┘

An update runs without the lock: it may wait for other servers, and these for trainers that wait for a reply from this
one. Requests of other steps are acknowledged (past), deferred (the one being applied) or rejected (a lost state).

    step 7    trainer 0   w.block0, b, rows of table ids   barrier
              trainer 1   w.block0, b                       barrier     ─▶ complete: mean over the two, in this order
              trainer 2   (dropped: the step does not wait for it)

The mean is taken in the order of the trainers' numbers, whatever the order of arrival, so that runs repeat bit
for bit.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import read
from argosy.engine.ps.rpc.server import Handler, Request
from argosy.engine.ps.server.membership import Membership, named
from argosy.engine.ps.server.snapshots import Snapshots
from argosy.engine.ps.server.state import BlockGradient, PushUpdate, ServerState, SyncUpdate
from argosy.engine.ps.table.table import merge_rows

Handle = Callable[[Request], None]
LastPulled = dict[tuple[int, str], Tensor]
"""The last pull of each trainer and block: DC-ASGD compensates for the changes since."""


class DeferredRequests:
    """Requests, each with the step that it waits for and the function to run then."""

    def __init__(self, lock: threading.RLock, is_ready: Callable[[int], bool]) -> None:
        """`is_ready(after)`: whether the server is initialised, and that step is done."""
        self._lock, self._is_ready = lock, is_ready
        self._deferred: list[tuple[int, Request, Handle]] = []

    def run_after(self, after: int, request: Request, handle: Handle) -> None:
        """Call `handle(request)` once the step is done: now, or in `release`."""
        with self._lock:
            if not self._is_ready(after):
                self._deferred.append((after, request, handle))
                return
        handle(request)

    def release(self) -> None:
        """Run the requests that can run now; called without the lock."""
        with self._lock:
            deferred, self._deferred = self._deferred, []
        for after, request, handle in deferred:
            try:
                self.run_after(after, request, handle)
            except Exception as e:  # a request that fails must not affect the others
                request.reject_if_pending(f"{type(e).__name__}: {e}")

    def requests(self) -> list[Request]:
        return [request for _, request, _ in self._deferred]


@dataclass
class Contribution:
    """The part of a step that one trainer has sent."""

    client: str
    """The incarnation of the trainer; a restarted trainer discards what its previous incarnation has sent."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    row_rates: dict[str, float] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    """The sequence numbers of the requests that have arrived."""
    expected: set[int] | None = None
    """The sequence numbers of all pushes of the step, once the barrier has arrived."""
    waiting: list[Request] = field(default_factory=list)
    """Requests to reply to when the step is done."""

    @property
    def is_complete(self) -> bool:
        return self.expected is not None and self.expected <= self.received


class Round:
    """One step that collects contributions."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._by_trainer: dict[int, Contribution] = {}

    def of(self, trainer: int, client: str) -> Contribution:
        """The contribution of a trainer so far."""
        contribution = self._by_trainer.get(trainer)
        if contribution is None or contribution.client != client:
            contribution = self._by_trainer[trainer] = Contribution(client)
        return contribution

    def discard(self, trainer: int, client: str = "") -> None:
        """Discard an incomplete contribution; with `client`, also one that another incarnation has sent.

        That process is gone: if this server were killed now, no process would send it again.
        """
        contribution = self._by_trainer.get(trainer)
        if contribution is None:
            return
        if not (contribution.is_complete and client in ("", contribution.client)):
            del self._by_trainer[trainer]

    def has_all_of(self, trainer: int) -> bool:
        contribution = self._by_trainer.get(trainer)
        return contribution is not None and contribution.is_complete

    def missing(self, live: Iterable[int]) -> list[int]:
        """The live trainers whose contributions are not complete."""
        return sorted(trainer for trainer in live if not self.has_all_of(trainer))

    def is_ready(self, live: Iterable[int]) -> bool:
        """True if the contributions of all live trainers are complete, and there is at least one."""
        return not self.missing(live) and any(part.is_complete for part in self._by_trainer.values())

    def waiting(self) -> list[Request]:
        return [request for part in self._by_trainer.values() for request in part.waiting]

    def update(self) -> SyncUpdate:
        """The mean over the complete contributions."""
        parts = [part for _, part in sorted(self._by_trainer.items()) if part.is_complete]
        weight = 1.0 / len(parts)
        names = dict.fromkeys(name for part in parts for name in part.gradients)
        gradients = {n: mean([p.gradients[n] for p in parts if n in p.gradients], weight) for n in names}
        rates: dict[str, float] = {}
        row_rates: dict[str, float] = {}
        for part in reversed(parts):
            rates |= part.rates
            row_rates |= part.row_rates
        tables = dict.fromkeys(name for part in parts for name in part.rows)
        rows = {n: merge_rows([pair for p in parts for pair in p.rows.get(n, [])], weight) for n in tables}
        return SyncUpdate(self.step, gradients, rates, rows, row_rates)


def mean(parts: list[Tensor], weight: float) -> Tensor:
    """The sum of the parts in their order, times the weight."""
    if len(parts) == 1 and weight == 1.0:
        return parts[0]
    total = parts[0].clone() if len(parts) == 1 else parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total.mul_(weight)


class StepCoordinator:
    """The current step, and how many are done."""

    def __init__(
        self,
        plan: JobPlan,
        membership: Membership,
        deferred: DeferredRequests,
        lock: threading.RLock,
        state: ServerState,
        snapshots: Snapshots,
        failed: Callable[[str], None],
    ) -> None:
        """`failed` is called with the reason if a step cannot be done."""
        self.done = 0
        """sync and half_async: steps of all trainers together; async: the sum over the trainers."""
        self._plan, self._membership, self._deferred, self._lock = plan, membership, deferred, lock
        self._state, self._snapshots, self._failed = state, snapshots, failed
        self._round = Round(1)
        self._applying: Round | None = None
        """The step whose update runs."""

    def handlers(self) -> dict[str, Handler]:
        return {"barrier": Handler("send", self._barrier), "pause": Handler("send", self._pause)}

    def begin_at(self, done: int) -> None:
        """Continue after this many steps, done by a previous incarnation of this server."""
        self.done, self._round = done, Round(done + 1)

    def next_of(self, trainer: int, client: str) -> int:
        """The step that this incarnation of a trainer sends next: the first that is incomplete on this server."""
        if not self._plan.is_synchronous:
            return 1
        self._round.discard(trainer, client)
        return self._round.step + (1 if self._round.has_all_of(trainer) else 0)

    def contribute(self, step: int, request: Request, add: Callable[[Contribution], None]) -> None:
        """Add to the contribution of a trainer; the reply is sent when the step is done."""
        with self._lock:
            self._membership.check(request)
            if self._membership.is_outdated(request):  # the trainer has restarted the step
                request.reply()
                return
            if self._is_handled(step, request, lambda request: self.contribute(step, request, add)):
                return
            overtaken = None if step == self._round.step else self._round
            if overtaken is not None:  # half_async: a snapshot may be older than what trainers have done
                self.begin_at(step - 1)
            contribution = self._round.of(request.trainer, request.client)
            add(contribution)
            contribution.received.add(request.id)
            contribution.waiting.append(request)
        if overtaken is not None:
            for waiting in overtaken.waiting():
                waiting.reply({"steps": self.done})
            self._deferred.release()
        self.advance()

    def _is_handled(self, step: int, request: Request, handle: Handle) -> bool:
        """True if the request is not of the current step, and has been acknowledged or deferred."""
        current = self._round.step
        if step <= self.done:  # done, in another incarnation of the trainer or of this server
            request.reply({"steps": self.done})
        elif step < current:  # being applied
            self._deferred.run_after(step, request, handle)
        elif step == current:
            return False
        elif step == current + 1 and self._round.has_all_of(request.trainer):
            # The trainer was restarted after it had sent all.
            self._deferred.run_after(current, request, handle)
        elif self._plan.mode == "half_async":
            return False
        else:
            raise self._without_state(request, f"sends step {step}")
        return True

    def check_reachable(self, after: int, request: Request) -> None:
        """Raise if this server will never do that step: it was restarted without its state."""
        with self._lock:
            # A trainer that was restarted after it had sent all of a step is one step ahead.
            is_lost = after > self._round.step + 1 or (after > 0 and not self._state.is_initialised)
        if is_lost:
            raise self._without_state(request, f"wants values after step {after}")

    def _without_state(self, request: Request, what: str) -> ConfigError:
        return ConfigError(
            f"{request.who} {what}, and this server has done {self.done}: it was restarted without its state; let "
            "fleetrun persist it (--max_restarts or --server_state), or restart the whole job"
        )

    def _barrier(self, request: Request) -> None:
        message = read(messages.Barrier, request.meta)

        def set_expected(contribution: Contribution) -> None:
            contribution.expected = set(message.pushes)

        self.contribute(message.step, request, set_expected)

    def check(self, request: Request) -> None:
        """Raise if the gradient must not be applied (half_async: of a dropped trainer or a previous incarnation)."""
        if self._plan.mode == "half_async":
            self._membership.check(request)

    def applied(self, step: int, request: Request) -> None:
        """Acknowledge an applied push: at once; half_async: when the step of all trainers is done."""
        if self._plan.mode == "half_async":
            self.contribute(step, request, lambda contribution: None)
        else:
            request.reply({"steps": self.done})

    def count(self, steps: int) -> None:
        """async: a trainer reports further steps."""
        if self._plan.mode == "async":
            with self._lock:
                self.done += steps
                self._state.steps_reported = self.done

    def _pause(self, request: Request) -> None:
        """The reply is sent when the trainer is back, so that the client repeats the request to a restarted server."""
        read(messages.Pause, request.meta)
        with self._lock:
            self._membership.pause(request)
        self.advance()

    def drop(self, trainer: int) -> None:
        """Remove a trainer: steps no longer wait for it."""
        with self._lock:
            self._membership.live.discard(trainer)
            self._round.discard(trainer)
        self.advance()

    def advance(self) -> None:
        """Do the step if all active trainers have sent their part; called without the lock."""
        while True:
            with self._lock:
                if self._applying is not None or not self._round.is_ready(self._membership.active()):
                    return
                finished, self._round = self._round, Round(self._round.step + 1)
                self._applying = finished
            try:
                if self._plan.mode == "sync":
                    # A trainer sends this step when it has the replies to the previous one from all servers: all have
                    # done that one, so no server's snapshot is ahead of another server.
                    if self._snapshots.is_due:
                        self._snapshots.capture(finished.step - 1)
                    update = finished.update()
                    self._state.apply(update)
                    self._state.record_step(update)
                else:
                    # If this server is killed, a trainer that has some of the replies repeats only the other requests.
                    self._state.record_step_done(finished.step)
            except Exception as e:
                logger.exception("step %d failed", finished.step)
                self._failed(f"step {finished.step} failed: {type(e).__name__}: {e}")
                return
            with self._lock:
                self._applying, self.done = None, max(self.done, finished.step)
            for request in finished.waiting():
                request.reply({"steps": self.done})
            self._deferred.release()

    @property
    def applying_step(self) -> int:
        """The step that is being applied, and is not logged yet; 0 if there is none."""
        return self._applying.step if self._applying is not None else 0

    def report_progress(self) -> None:
        """Report to the waiting trainers what they wait for."""
        status = f"waits for {named(self._round.missing(self._membership.active()))}"
        for request in [*self._round.waiting(), *self._deferred.requests()]:
            request.progress(status if self._state.is_initialised else "waits for the initial values")
        if self._applying is not None:
            for request in self._applying.waiting():
                request.progress(f"step {self._applying.step} is being applied")

    def requests(self) -> list[Request]:
        """All waiting requests."""
        applying = self._applying.waiting() if self._applying is not None else []
        return [*applying, *self._round.waiting(), *self._deferred.requests()]


class PushHandlers:
    """Handlers of push and push_rows.

    sync         collected until the step is complete
    async        applied on arrival (DC-ASGD: compensated for the changes since the trainer's last pull)
    half_async   as async; acknowledged when the step of all trainers is done
    geo          added on arrival
    """

    def __init__(
        self, plan: JobPlan, state: ServerState, steps: StepCoordinator, last_pulled: LastPulled
    ) -> None:
        self._plan, self._state, self._steps, self._last_pulled = plan, state, steps, last_pulled

    def handlers(self) -> dict[str, Handler]:
        return {"push": Handler("send", self._push), "push_rows": Handler("send", self._push_rows)}

    def _push(self, request: Request) -> None:
        message = read(messages.Push, request.meta)
        gradients = self._state.shaped(dict(zip(message.blocks, request.tensors, strict=True)))
        rates = dict(zip(message.blocks, message.rates, strict=True))

        def add(contribution: Contribution) -> None:
            contribution.gradients |= gradients
            contribution.rates |= rates

        if self._plan.mode == "sync":
            self._steps.contribute(message.step, request, add)
            return
        self._steps.check(request)
        blocks = [
            BlockGradient(name, gradient, rates[name], self._backup(request.trainer, name))
            for name, gradient in gradients.items()
        ]
        self._state.push(PushUpdate(blocks), request, lambda: self._steps.applied(message.step, request))

    def _backup(self, trainer: int, name: str) -> Tensor | None:
        """The values that a trainer has computed with: its last pull, else the current ones."""
        if self._plan.compensation is None:
            return None
        pulled = self._last_pulled.get((trainer, name))
        return self._state.blocks([name])[name].clone() if pulled is None else pulled

    def _push_rows(self, request: Request) -> None:
        message = read(messages.PushRows, request.meta)
        table, (ids, rows) = self._state.table(message.table), request.tensors
        if rows.shape != (len(ids), table.spec.dim):
            raise ConfigError(
                f"rows of {message.table!r} are {list(rows.shape)} for {list(ids.shape)} ids; they must be "
                f"[{len(ids)}, {table.spec.dim}] for int64 ids"
            )

        def add(contribution: Contribution) -> None:
            contribution.rows.setdefault(message.table, []).append((ids, rows))
            contribution.row_rates[message.table] = message.rate

        if self._plan.mode == "sync":
            self._steps.contribute(message.step, request, add)
            return
        self._steps.check(request)
        push = PushUpdate((), message.table, ids, rows, message.rate, adds=self._plan.mode == "geo")
        self._state.push(push, request, lambda: self._steps.applied(message.step, request))
