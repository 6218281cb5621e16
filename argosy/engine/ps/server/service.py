"""A parameter server: who does what with each kind of message, and how it begins and ends.

    Listener ──▶ Gradients (push, push_rows) ──▶ Steps (rounds, barriers) ──▶ State (updates, tables, journal)
             ──▶ Values (pull, pull_rows, …) ◀── Held until the step is done ◀──┘
             ──▶ Gatherings (trainers meet)      Norms (servers add up)      Members (who is alive)

It knows nothing of programs: `Updater` runs the optimizer, a table its own. Handlers run on the listener's pools, all
but the short ones of servers among themselves, which the I/O thread runs.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.listener import Handler, Listener, Request
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.server.gatherings import Gatherings
from argosy.engine.ps.server.gradients import Gradients
from argosy.engine.ps.server.held import Held
from argosy.engine.ps.server.members import Members, named
from argosy.engine.ps.server.norms import Norms
from argosy.engine.ps.server.state import State, Updater
from argosy.engine.ps.server.steps import Steps
from argosy.engine.ps.server.values import Pulled, Values

_TICK_S = 0.5
_LINGER_S = 10.0
_TELL_S = 5.0
_ABSENT_S = 30.0
"""How often a server says which trainers have not come yet."""


class Service:
    """One server of a job."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        updater: Updater,
        settings: Settings,
        directory: Path | None = None,
        drops_dead: bool = False,
        stays: bool = False,
        snapshot_s: float = 60.0,
        dead_workers: Path | None = None,
    ) -> None:
        """`directory`: where to keep what must survive a kill. `drops_dead`: go on without a trainer that is silent.

        `stays`: serve until `stop`, also when all trainers have left. `dead_workers`: a file that names trainers that
        are dead, a number in each line.
        """
        self.plan, self.number, self.settings = plan, number, settings
        self._drops_dead, self._stays, self._snapshot_s = drops_dead, stays, snapshot_s
        self._dead_workers = dead_workers
        self._lock = threading.RLock()
        self.members = Members(plan.trainers)
        self.norms = Norms(plan, number, settings, lambda: self.listener.is_stopped)
        self.state = State(plan, updater, self.members, self.norms, directory)
        self._held = Held(self._lock, self._is_ready)
        self.steps = Steps(plan, self.members, self._held, self._lock, self.state, self._fail)
        self._gatherings = Gatherings(self.members, self.state)
        pulled: Pulled = {}
        self._values = Values(plan, number, self.state, self.steps, self._held, pulled)
        self._gradients = Gradients(plan, self.state, self.steps, pulled)
        self._failure = ""
        self._failed_at: float | None = None
        self._empty_since: float | None = None
        self._restored_at: float | None = None
        self._told = self._saved = self._said = time.monotonic()
        self._over = threading.Event()
        self.listener = Listener(plan.endpoints[number], settings, self._handlers(), self.on_silent)

    def _handlers(self) -> dict[str, Handler]:
        parts = (self._values, self._gradients, self.steps, self.norms, self._gatherings)
        checked = {
            "hello": Handler("get", self._hello),
            **{kind: handler for part in parts for kind, handler in part.handlers().items()},
        }
        return {
            "ping": Handler("io", lambda request: request.answer()),
            "leave": Handler("get", self._leave),
            **{kind: replace(handler, function=self._checked(handler)) for kind, handler in checked.items()},
        }

    def _checked(self, handler: Handler) -> Callable[[Request], None]:
        """What a server refuses that has failed."""

        def checked(request: Request) -> None:
            if self._failure:
                request.refuse(self._failure)
            else:
                handler.function(request)

        return checked

    def _is_ready(self, after: int) -> bool:
        return self.state.is_initialised and (not self.plan.is_in_step or after <= self.steps.done)

    # --- life -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve until all trainers have left, or `stop` is called."""
        if (done := self.state.restore()) is not None:
            self.steps.begin_at(done)
            self._gatherings.restore()
            self._restored_at = time.monotonic()
            self._note_empty()
        watcher = threading.Thread(target=self._watch, name="ps-watch", daemon=True)
        watcher.start()
        try:
            self.listener.serve()
        finally:
            self._over.set()
            watcher.join()
            self.norms.close()
            if not self._failure and not self.steps.is_applying:
                self.state.snapshot(self.steps.done)
            self.state.close()
        if self._failure:
            raise ProgramError(self._failure)

    def stop(self) -> None:
        self.listener.stop()

    def _watch(self) -> None:
        """Twice a second: who is silent, what is due, whether all is over."""
        while not self._over.wait(_TICK_S):
            try:
                self._look_round(time.monotonic())
            except Exception:  # whoever watches must not die
                logger.exception("looking after trainers failed")

    def _look_round(self, now: float) -> None:
        self._look_for_silent(now)
        self._look_for_dead()
        if self._is_over(now):
            self.stop()
            return
        if now - self._told >= _TELL_S:
            self._told = now
            self._tell()
        if now - self._said >= _ABSENT_S:
            self._said = now
            if absent := sorted(self.members.live - self.listener.alive().keys()):
                logger.log(NOTICE, "%s: not come yet; see the workerlogs", named(absent))
        if self.plan.mode != "sync" and now - self._saved >= self._snapshot_s:
            self._saved = now
            try:
                self.state.snapshot(self.steps.done)
            except Exception as e:  # also safetensors' own, of a full disk
                logger.error("the state could not be written: %s; again in %g s", e, self._snapshot_s)

    def _tell(self) -> None:
        """Say to those who wait for whom."""
        with self._lock:
            self.steps.tell()
            for request in self.members.away.values():
                request.tell("waits in a meeting")
        self._gatherings.tell()
        self.norms.tell()

    def _is_over(self, now: float) -> bool:
        """True if all trainers have left, and have had time to get the answer: nobody is heard any more."""
        if self._failed_at is not None:
            return now - self._failed_at > _LINGER_S
        if self.members.live or self._stays or self._empty_since is None:
            return False
        quiet = all(heard > 2 * self.settings.heartbeat_s for heard in self.listener.alive().values())
        return quiet or now - self._empty_since > _LINGER_S

    # --- trainers come and go -------------------------------------------------------------------------

    def _hello(self, request: Request) -> None:
        hello = read(messages.Hello, request.meta)
        ours = messages.hello(self.plan)
        for what in ("mode", "trainers", "blocks", "tables", "optimizers"):
            theirs, own = getattr(hello, what), getattr(ours, what)
            if theirs != own:
                raise ConfigError(
                    f"{request.who} and this server disagree on {_difference(what, theirs, own)}"
                )
        if not 0 <= request.trainer < self.plan.trainers:
            raise ConfigError(f"{request.who}: there are trainers 0 to {self.plan.trainers - 1}")
        with self._lock:
            is_new = not self.members.knows(request)
            had_left = self.members.greet(request)
            next_step = self.steps.next_of(request.trainer)
        if is_new:
            self._values.begin(request.trainer)
        if had_left:
            self.state.record_back(request.trainer)
        request.answer(messages.meta(messages.Welcome(next_step, self.state.is_initialised)))

    def _leave(self, request: Request) -> None:
        """Written down before it is answered, and the trainer is not waited for before it hears so."""
        trainer = request.trainer
        if self.members.is_of_this_life(request):
            self.members.left.add(trainer)
            try:
                self.state.record_left(trainer)
            except OSError as e:
                logger.error("that trainer %d has left could not be written down: %s", trainer, e)
            logger.log(NOTICE, "trainer %d has left after step %d", trainer, self.steps.done)
            self._without(trainer)
        request.answer()

    def on_silent(self, trainer: int) -> None:
        """A trainer has not been heard for long: go on without it, or end the job."""
        if trainer not in self.members.live:
            return
        is_known = trainer in self.members.silent
        text = f"trainer {trainer} has been silent for {(4 if is_known else 1) * self.settings.silent_s:g} s"
        if self._drops_dead:
            logger.warning("%s; going on without it", text)
            self._without(trainer)
        elif self._stays and not is_known:  # a launcher may start it anew, or end the job
            logger.warning("%s", text)
            self.members.silent[trainer] = time.monotonic()
        else:
            self._fail(
                f"{text}, so the job cannot go on; see its workerlog (did it end without fleet.stop_worker() or "
                "exe.close()?), start it anew (fleetrun --max_restarts=N) or let the others go on without it (fleetrun "
                "--dead_worker=drop)"
            )

    def _look_for_silent(self, now: float) -> None:
        """Trainers that nobody has started anew, and those that died while this server was away."""
        heard = self.listener.alive()
        for trainer, since in list(self.members.silent.items()):
            if heard.get(trainer, float("inf")) < self.settings.silent_s:
                self.members.silent.pop(trainer, None)  # it was only stopped for a while
            elif now - since > 3 * self.settings.silent_s and self._failed_at is None:
                self.on_silent(trainer)
        if self._restored_at is not None and now - self._restored_at >= self.settings.silent_s:
            self._restored_at = None
            for trainer in self.members.live - heard.keys():
                self.on_silent(trainer)

    def _look_for_dead(self) -> None:
        """Those of which the launcher knows that they are."""
        if self._dead_workers is None or not self._dead_workers.exists():
            return
        for word in self._dead_workers.read_text().split():
            if word.isdecimal() and int(word) in self.members.live:
                logger.warning("trainer %s is dead, as the launcher says; going on without it", word)
                self._without(int(word))

    def _without(self, trainer: int) -> None:
        """Nobody waits for this trainer any more."""
        self.steps.drop(trainer)
        self._gatherings.check()
        self._note_empty()

    def _note_empty(self) -> None:
        if not self.members.live:
            self._empty_since = time.monotonic()

    def _fail(self, text: str) -> None:
        """The job cannot go on: tell everybody who waits, and end soon."""
        self._failure, self._failed_at = f"server {self.number}: {text}", time.monotonic()
        logger.error("%s", self._failure)
        with self._lock:
            everybody = [*self.steps.requests(), *self.members.away.values()]
        for request in [*everybody, *self._gatherings.requests()]:
            if not request.is_answered:
                request.refuse(self._failure)


_current: Service | None = None


def current() -> Service:
    """The server that this process is."""
    assert _current is not None, "only a server runs a server's program"
    return _current


def set_current(service: Service | None) -> None:
    global _current  # noqa: PLW0603  (a process is one server)
    _current = service


def _difference(what: str, theirs: Any, own: Any) -> str:
    if isinstance(own, list):
        only = sorted(set(theirs) ^ set(own))
        named = f"{only[0]!r} is on one side only" if only else "their order differs"
        return f"{what}: {named}; build the same program with the same settings in every process"
    return f"{what}: {theirs!r} and {own!r}; transpile both with the same arguments (or strategy)"
