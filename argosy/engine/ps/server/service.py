"""A parameter server: the handlers of all kinds of requests, start, membership and end.

    RpcServer ──▶ PushHandlers (push, push_rows) ──▶ StepCoordinator (steps, barriers) ──▶ ServerState (updates, WAL)
              ──▶ PullHandlers (pull, pull_rows) ◀── DeferredRequests until the step is done ◀──┘
              ──▶ TrainerRegistry (hello, goodbye, unresponsive trainers) ──▶ Membership
              ──▶ TrainerCollectives (all-gather, all-to-all)   Norms (sums over the servers)   Snapshots

It does not know Programs: an `Updater` runs the optimizer of blocks, a table its own. Handlers run in the pools of the
RPC server, except the short ones for requests between servers, which run in its I/O thread.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.engine.disk import Disk
from argosy.engine.errors import ArgosyError, ConfigError, ProgramError
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics.metrics_recorder import MetricsRecorder
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import Restored, read
from argosy.engine.ps.rpc.server import Handler, Request, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.handlers import PullHandlers
from argosy.engine.ps.server.measurements import ServerMeasurements
from argosy.engine.ps.server.membership import Membership, common_step, named
from argosy.engine.ps.server.snapshots import Snapshots
from argosy.engine.ps.server.state import ServerState, Updater
from argosy.engine.ps.server.sync import DeferredRequests, LastPulled, PushHandlers, StepCoordinator
from argosy.engine.ps.server.trainer_collectives import Norms, TrainerCollectives

_TICK_S = 0.5
_LINGER_S = 10.0
_PROGRESS_S = 5.0
_MISSING_S = 30.0
"""How often a server logs which trainers have not connected yet."""


class TrainerRegistry:
    """The trainers of a job: they register and leave; unresponsive ones are dropped, or fail the job."""

    def __init__(
        self,
        plan: JobPlan,
        settings: RpcSettings,
        lock: threading.RLock,
        state: ServerState,
        steps: StepCoordinator,
        deferred: DeferredRequests,
        on_register: Callable[[int], None],
        on_remove: Callable[[], None],
        fail: Callable[[str], None],
        *,
        drops_dead: bool,
        may_restart: bool,
        dead_workers: Path | None,
    ) -> None:
        """`on_register(trainer)`: a new incarnation. `on_remove()`: fewer live trainers. `fail(text)` fails the job.

        `may_restart`: a launcher may restart a trainer. `dead_workers`: a file with the numbers of dead trainers, one
        in each line.
        """
        self._plan, self._settings, self._lock = plan, settings, lock
        self._membership, self._state, self._steps, self._deferred = state.membership, state, steps, deferred
        self._on_register, self._on_remove, self._fail = on_register, on_remove, fail
        self._drops_dead, self._may_restart, self._dead_workers = drops_dead, may_restart, dead_workers
        self.empty_since: float | None = None
        """Since when there is no live trainer."""
        self.is_preempted = False
        """True once a trainer has left because the job was preempted."""
        self._restored_at: float | None = None
        self._is_open = False
        self._early: list[Request] = []
        """Hello requests that arrived before the servers agreed on a step."""

    def open(self, failure: str) -> None:
        """Handle the hello requests that have arrived so far, and later ones at once; with `failure`, reject them."""
        with self._lock:
            self._is_open = True
            early, self._early = self._early, []
        for request in early:
            try:
                if failure:
                    raise ProgramError(failure)
                self._register(request)
            except ArgosyError as e:
                request.reject_if_pending(str(e))  # the RPC server may have stopped, and rejected it

    def note_restored(self) -> None:
        """The state was restored: trainers that died while this server was down do not register again."""
        self._restored_at = time.monotonic()
        self._note_if_empty()

    def hello(self, request: Request) -> None:
        """Handler of hello."""
        with self._lock:
            if not self._is_open:
                self._early.append(request)
                return
        self._register(request)

    def _register(self, request: Request) -> None:
        hello = read(messages.Hello, request.meta)
        ours = messages.hello(self._plan)
        for what in ("mode", "trainers", "blocks", "tables", "optimizers"):
            theirs, expected = getattr(hello, what), getattr(ours, what)
            if theirs != expected:
                raise ConfigError(
                    f"{request.who} and this server disagree on {_difference(what, theirs, expected)}"
                )
        if not 0 <= request.trainer < self._plan.trainers:
            raise ConfigError(
                f"{request.who}: the job has trainers 0 to {self._plan.trainers - 1}; fix its number"
            )
        with self._lock:
            is_new = not self._membership.is_registered(request)
            applying = self._steps.applying_step if is_new else 0
            if applying:
                # That step is not logged yet: if this server is killed now, no process sends it again.
                self._deferred.run_after(applying, request, self._register)
                return
            had_left = self._membership.register(request)
            next_step = self._steps.next_of(request.trainer, request.client)
        if is_new:
            self._on_register(request.trainer)
        if had_left:
            self._state.record_rejoin(request.trainer)
        request.reply(messages.meta(messages.HelloReply(next_step, self._state.is_initialised)))

    def goodbye(self, request: Request) -> None:
        """Handler of goodbye: log that the trainer leaves, remove it from the live trainers, then reply."""
        trainer = request.trainer
        if self._membership.is_current_incarnation(request):
            self.is_preempted |= read(messages.Goodbye, request.meta).is_preempted
            self._membership.left.add(trainer)
            try:
                self._state.record_leave(trainer)
            except OSError as e:
                logger.error("the leave of trainer %d could not be logged: %s", trainer, e)
            logger.log(NOTICE, "trainer %d has left after step %d", trainer, self._steps.done)
            self._remove(trainer)
        request.reply()

    def on_unresponsive(self, trainer: int) -> None:
        """A trainer is unresponsive: continue without it, or fail the job."""
        if trainer not in self._membership.live:
            return
        is_known = trainer in self._membership.unresponsive
        waited_s = (4 if is_known else 1) * self._settings.heartbeat_timeout_s
        text = f"trainer {trainer} has been unresponsive for {waited_s:g} s"
        if self._drops_dead:
            logger.warning("%s; continuing without it", text)
            self._remove(trainer)
        elif self._may_restart and not is_known:  # a launcher restarts it, or ends the job
            logger.warning("%s", text)
            self._membership.unresponsive[trainer] = time.monotonic()
        else:
            self._fail(
                f"{text}, so the job cannot continue; see its workerlog (did it exit without fleet.stop_worker() or "
                "exe.close()?), restart it (fleetrun --max_restarts=N) or let the others continue without it (fleetrun "
                "--dead_worker=drop)"
            )

    def check(self, now: float, last_seen_s: dict[int, float]) -> None:
        """Drop the trainers that the launcher reports as dead; drop, or fail for, those that stay unresponsive.

        `last_seen_s`: by trainer, the seconds since its last message.
        """
        self._check_unresponsive(now, last_seen_s)
        self._check_dead_workers()

    def _check_unresponsive(self, now: float, last_seen_s: dict[int, float]) -> None:
        """Fail, or drop, trainers that were not restarted, and those that died while this server was down."""
        for trainer, since in list(self._membership.unresponsive.items()):
            if last_seen_s.get(trainer, float("inf")) < self._settings.heartbeat_timeout_s:
                self._membership.unresponsive.pop(trainer, None)  # it was only paused
            elif now - since > 3 * self._settings.heartbeat_timeout_s:
                self.on_unresponsive(trainer)
        if self._restored_at is not None and now - self._restored_at >= self._settings.heartbeat_timeout_s:
            self._restored_at = None
            for trainer in self._membership.live - last_seen_s.keys():
                self.on_unresponsive(trainer)

    def _check_dead_workers(self) -> None:
        """Drop the trainers that the launcher reports as dead."""
        if self._dead_workers is None or not self._dead_workers.exists():
            return
        for word in self._dead_workers.read_text().split():
            if word.isdecimal() and int(word) in self._membership.live:
                logger.warning("the launcher reports trainer %s as dead; continuing without it", word)
                self._remove(int(word))

    def _remove(self, trainer: int) -> None:
        """Remove a trainer from the live trainers: steps and collectives no longer wait for it."""
        self._steps.drop(trainer)
        self._on_remove()
        self._note_if_empty()

    def _note_if_empty(self) -> None:
        if not self._membership.live:
            self.empty_since = time.monotonic()


class Service:
    """One server of a job."""

    def __init__(
        self,
        plan: JobPlan,
        number: int,
        updater: Updater,
        settings: RpcSettings,
        directory: Path | None = None,
        drops_dead: bool = False,
        stays: bool = False,
        snapshot_s: float = 60.0,
        dead_workers: Path | None = None,
        durability: str = "log",
        job: str = "",
        loader: Callable[[Path], None] | None = None,
        disk: Disk | None = None,
        recorder: MetricsRecorder | None = None,
    ) -> None:
        """`directory`: for the state that must survive a kill. `drops_dead`: continue without an unresponsive trainer.

        `stays`: serve until `stop`, also when all trainers have left. `dead_workers`: a file with the numbers of dead
        trainers, one in each line. `durability`: see `ServerState`; `job`: see `Snapshots`.
        `loader` loads a saved model. `disk`: where the directory is; by default this machine's. `recorder`: writes
        measurements once per second.
        """
        self.plan, self.number, self.settings = plan, number, settings
        self._stays, self._snapshot_s, self.loader = stays, snapshot_s, loader
        self._lock = threading.RLock()
        self.membership = Membership(plan.trainers)
        self.norms = Norms(plan, number, settings, lambda: self.rpc.is_stopped)
        self.state = ServerState(
            plan, updater, self.membership, self.norms, directory, durability, disk, self._fail
        )
        self.snapshots = Snapshots(self.state, job)
        self._deferred = DeferredRequests(self._lock, self._is_ready)
        self.steps = StepCoordinator(
            plan, self.membership, self._deferred, self._lock, self.state, self.snapshots, self._fail
        )
        self._collectives = TrainerCollectives(self.membership, self.state.record_all_gather)
        last_pulled: LastPulled = {}
        self._pull_handlers = PullHandlers(
            plan, number, self.state, self.snapshots, self.steps, self._deferred, last_pulled
        )
        self._push_handlers = PushHandlers(plan, self.state, self.steps, last_pulled)
        self.registry = TrainerRegistry(
            plan, settings, self._lock, self.state, self.steps, self._deferred,
            self._pull_handlers.begin, self._collectives.check, self._fail,
            drops_dead=drops_dead, may_restart=stays, dead_workers=dead_workers,
        )  # fmt: skip
        self._failure = ""
        self._failed_at: float | None = None
        self._restored = Restored(None, is_untouched=True)
        self._reported_at = self._snapshot_at = self._missing_logged_at = time.monotonic()
        self._stopped = threading.Event()
        self.rpc = RpcServer(
            plan.endpoints[number], settings, self._handlers(), self.registry.on_unresponsive
        )
        self._measurements = None
        if recorder is not None and recorder.is_on:
            self._measurements = ServerMeasurements(plan, number, self.state, self.rpc, settings, recorder)

    def _handlers(self) -> dict[str, Handler]:
        parts = (self._pull_handlers, self._push_handlers, self.steps, self.norms, self._collectives)
        checked = {
            "hello": Handler("get", self.registry.hello),
            "load": Handler("send", self._load),
            **{kind: handler for part in parts for kind, handler in part.handlers().items()},
        }
        return {
            "ping": Handler("io", lambda request: request.reply()),
            "goodbye": Handler("get", self.registry.goodbye),
            "last_step": Handler("io", lambda request: request.reply(messages.meta(self._restored))),
            **{kind: replace(handler, function=self._checked(handler)) for kind, handler in checked.items()},
        }

    def _checked(self, handler: Handler) -> Callable[[Request], None]:
        """Wrap a handler: reject requests after a failure, and requests with the wrong tensors."""

        def checked(request: Request) -> None:
            if self._failure:
                request.reject(self._failure)
            else:
                messages.check_tensors(request.kind, request.meta, request.tensors)
                handler.function(request)

        return checked

    def _is_ready(self, after: int) -> bool:
        return self.state.is_initialised and (not self.plan.is_synchronous or after <= self.steps.done)

    # --- lifecycle -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve until all trainers have left, or `stop` is called."""
        done = self.snapshots.restore()
        self._restored = Restored(done, self.snapshots.is_untouched)
        watcher = threading.Thread(target=self._watch, name="ps-watch", daemon=True)
        watcher.start()
        if self._measurements is not None:
            self._measurements.start()
        if self.snapshots.is_of_another_job:  # the other servers query this one, so it must already serve
            starter = threading.Thread(target=self._start, args=(done,), name="ps-start", daemon=True)
            starter.start()
        else:
            starter = None
            self._start(done)
        try:
            self.rpc.serve()
        finally:
            self._stopped.set()
            watcher.join()
            if self._measurements is not None:
                self._measurements.stop()
            if starter is not None:
                starter.join()
            self.norms.close()
            # sync: while trainers are live, another server may be a step behind; the log has everything.
            if not self._failure and not (self.plan.mode == "sync" and self.membership.live):
                self._write_last_snapshot()
            self.state.close()
        if self._failure:
            raise ProgramError(self._failure)

    def _start(self, done: int | None) -> None:
        """Continue from the restored state; in a new job, from the last step that all servers have done."""
        try:
            if self.snapshots.is_of_another_job:
                done = self._agreed(done)
            if done is not None:
                self.steps.begin_at(max(done, self.state.steps_reported))
                self._collectives.restore(self.state.results)
                self.registry.note_restored()
            self._restored = Restored(done, self.snapshots.is_untouched)
        except Exception as e:
            self._fail(f"cannot start from the state of an earlier job: {e}")
        self.registry.open(self._failure)

    def _agreed(self, done: int | None) -> int | None:
        is_stopped = lambda: self.rpc.is_stopped  # noqa: E731
        common = common_step(self.plan, self.number, self._restored, self.settings, is_stopped)
        if common is None and self.plan.initialised_by_trainer:
            self.state.is_initialised = False  # trainer 0 sends the initial values to all servers again
            return None
        if self.plan.mode == "sync" and common is not None and done is not None and common < done:
            logger.warning("another server has done %d steps only: rolling back from step %d", common, done)
            done = self.snapshots.restore(last=common)
        self.snapshots.begin_job(done or 0)
        return done

    def stop(self) -> None:
        self.rpc.stop()

    def request_preemption(self) -> None:
        """Let the trainers save a checkpoint and leave; serves on until then. A signal handler may call it."""
        self._collectives.is_signalled = True

    @property
    def is_preempted(self) -> bool:
        """True if all trainers have left because the job was preempted."""
        return self.registry.is_preempted and not self.membership.live

    def _watch(self) -> None:
        """Call `_tick` twice a second."""
        while not self._stopped.wait(_TICK_S):
            try:
                self._tick(time.monotonic())
            except Exception:  # the thread must survive
                logger.exception("the periodic check of trainers and snapshots failed")

    def _tick(self, now: float) -> None:
        if self._failed_at is None:
            self.registry.check(now, self.rpc.last_seen_s())
        if self._is_over(now):
            self.stop()
            return
        if now - self._reported_at >= _PROGRESS_S:
            self._reported_at = now
            self._report_progress()
        if now - self._missing_logged_at >= _MISSING_S:
            self._missing_logged_at = now
            if missing := sorted(self.membership.live - self.rpc.last_seen_s().keys()):
                logger.log(NOTICE, "%s: not connected yet; see the workerlogs", named(missing))
        self._write_snapshot(now)

    def _write_last_snapshot(self) -> None:
        try:
            self.snapshots.take(self.steps.done)
        except OSError as e:
            logger.error("the last snapshot could not be written: %s; the log is complete", e)

    def _write_snapshot(self, now: float) -> None:
        """Write a snapshot if one is due; updates continue meanwhile."""
        is_time = self.state.durability == "snapshot" and now - self._snapshot_at >= self._snapshot_s
        try:
            if self.plan.mode != "sync" and (is_time or self.snapshots.is_due):
                self._snapshot_at = now
                self.snapshots.take(self.steps.done)
            else:
                self.snapshots.write_captured()  # sync: captured between two steps
        except Exception as e:  # safetensors has its own exception for a full disk
            logger.error("a snapshot could not be written: %s; retrying", e)

    def _report_progress(self) -> None:
        """Report to all waiting clients what they wait for."""
        with self._lock:
            self.steps.report_progress()
            for request in self.membership.excluded.values():
                request.progress("is excluded from steps while it waits in a collective")
        self._collectives.report_progress()
        self.norms.report_progress()

    def _is_over(self, now: float) -> bool:
        """True if all trainers have left, and no heartbeats arrive: they have received the last replies."""
        if self._failed_at is not None:
            return now - self._failed_at > _LINGER_S
        if self.membership.live or self._stays or self.registry.empty_since is None:
            return False
        is_quiet = all(seconds > 2 * self.settings.heartbeat_s for seconds in self.rpc.last_seen_s().values())
        return is_quiet or now - self.registry.empty_since > _LINGER_S

    def _load(self, request: Request) -> None:
        message = read(messages.Load, request.meta)
        loader = self.loader
        if loader is None:
            raise ConfigError("this server cannot load a saved model; start it from the saved model")
        self.snapshots.replace(lambda: loader(Path(message.path)), message.number, self.steps.done)
        self._deferred.release()
        request.reply()

    def _fail(self, text: str) -> None:
        """Fail the job: reject all waiting requests, and stop soon."""
        self._failure, self._failed_at = f"server {self.number}: {text}", time.monotonic()
        logger.error("%s", self._failure)
        with self._lock:
            waiting = [*self.steps.requests(), *self.membership.excluded.values()]
        for request in [*waiting, *self._collectives.requests()]:
            request.reject_if_pending(self._failure)


_current: Service | None = None


def current() -> Service:
    """The server that this process is."""
    assert _current is not None, "only a server runs a server's program"
    return _current


def set_current(service: Service | None) -> None:
    global _current  # noqa: PLW0603  (a process is one server)
    _current = service


def _difference(what: str, theirs: Any, expected: Any) -> str:
    if isinstance(expected, list):
        only = sorted(set(theirs) ^ set(expected))
        named = f"{only[0]!r} is on one side only" if only else "their order differs"
        return f"{what}: {named}; build the same program with the same settings in every process"
    return f"{what}: {theirs!r} and {expected!r}; transpile both with the same arguments (or strategy)"
