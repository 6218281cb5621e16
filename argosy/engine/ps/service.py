"""A parameter server: what it does with each kind of message.

    sync         gradients wait in the round of their step; the mean of all trainers is applied, then all is answered
    async        each gradient is applied as it comes (DC-ASGD: compensated for what has changed since)
    half_async   as async; a barrier keeps the trainers in step
    geo          trainers send changes, which are added

It knows nothing of programs: `Updater` runs the optimizer, a table its own. Handlers run on the listener's pools,
never on its I/O thread.
"""

# SPDX-License-Identifier: Apache-2.0
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps import messages
from argosy.engine.ps.journal import Journal
from argosy.engine.ps.meetings import Key, Meetings
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rounds import Contribution, Round, Update
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.listener import Handler, Listener, Request
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.table.table import SparseTable

_TICK_S = 0.5
_LINGER_S = 10.0
_TELL_S = 5.0
_LOG_BYTES = 64 << 20
_KEPT = "@kept@"
_GROUPS = 1000
"""Norms of one step."""
_KEPT_TOTALS = 16
_ASK_S = 1.0


class Updater(Protocol):
    """Keeps the blocks of a server, and updates them."""

    def values(self) -> Mapping[str, Tensor]:
        """The blocks by name, to read."""

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """One step of the optimizer with the mean gradients of all blocks."""

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        """One step of the optimizer on one block."""

    def initialised(self) -> None:
        """The blocks have got their first values."""

    def origins(self) -> dict[str, list[Any]]:
        """Of each part of a variable of the whole program: [its name, the first row]."""

    def state(self) -> Mapping[str, Tensor]:
        """Everything that must be kept: blocks and optimizer state."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""


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
    ) -> None:
        """`directory`: where to keep what must survive a kill. `drops_dead`: go on without a trainer that is silent.

        `stays`: serve until `stop`, also when all trainers have left.
        """
        self.plan, self.number, self.updater, self.settings = plan, number, updater, settings
        self.journal = Journal(directory) if directory else None
        spills = any(table.memory_rows for table in plan.tables)
        for old in directory.glob("argosy-rows-*") if directory else ():  # of a server that was killed
            shutil.rmtree(old, ignore_errors=True)
        self._spilled = tempfile.TemporaryDirectory(prefix="argosy-rows-", dir=directory) if spills else None
        place = Path(self._spilled.name) if self._spilled else None
        self.tables = {table.name: SparseTable(table, place) for table in plan.tables}
        self.step = 0
        """How many steps are done: in sync mode of all trainers together, else the sum over the trainers."""
        self.live = set(range(plan.trainers))
        self.left: set[int] = set()
        self.is_initialised = not plan.initialised_by_trainer
        self._drops_dead, self._stays, self._snapshot_s = drops_dead, stays, snapshot_s
        self._lock = threading.RLock()
        self._block_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._round = Round(1)
        self._held: list[tuple[int, Request, Callable[[Request], None]]] = []
        self._backups: dict[tuple[int, str], Tensor] = {}
        self._marks: dict[tuple[int, str], int] = {}
        self._boxes: dict[tuple[str, int], dict[int, Tensor]] = defaultdict(dict)
        self._takers: dict[tuple[str, int], Request] = {}
        self._meeting: list[tuple[Key, Request]] = []
        self._meetings = Meetings(self._expected)
        self._totals: dict[int, Tensor] = {}
        self._known_totals: dict[int, Tensor] = {}
        self._replayed: list[Tensor] = []
        self._told = self._saved = time.monotonic()
        self._failure = ""
        self._failed_at: float | None = None
        self._paused: dict[int, Request] = {}
        self._is_applying = False
        self._silent: dict[int, float] = {}
        """Trainers that a launcher may start anew, and since when they are silent."""
        self.kept: dict[str, Tensor] = {}
        self._empty_since: float | None = None
        self._restored_at: float | None = None
        self._others: Client | None = None
        self._lives: dict[int, str] = {}
        self.listener = Listener(plan.endpoints[number], settings, self._handlers(), self.on_silent)
        self._over = threading.Event()

    def _expected(self, key: Key) -> Iterable[int]:
        """Who comes to a meeting: the live trainers, or the servers that have a part of a norm."""
        return self.live if key[0] == "trainers" else self.plan.norms[int(key[1])]

    def _handlers(self) -> dict[str, Handler]:
        return {
            "ping": Handler("io", lambda request: request.answer()),
            "hello": Handler("get", self._hello),
            "initialise": Handler("send", self._initialise),
            "push": Handler("send", self._checked(self._push)),
            "push_rows": Handler("send", self._checked(self._push_rows)),
            "barrier": Handler("send", self._checked(self._barrier)),
            "pull": Handler("get", self._checked(self._pull), repeatable=True),
            "pull_rows": Handler("prefetch", self._checked(self._pull_rows), repeatable=True),
            "pull_changes": Handler("get", self._checked(self._pull_changes)),
            "total": Handler("io", self._checked(self._total_for)),
            "known_total": Handler("io", self._checked(self._known_total)),
            "meet": Handler("io", self._checked(self._meet)),
            "post": Handler("get", self._checked(self._post)),
            "take": Handler("get", self._checked(self._take)),
            "state": Handler("get", self._state, repeatable=True),
            "save": Handler("get", self._save),
            "pause": Handler("send", self._checked(self._pause)),
            "keep": Handler("get", self._keep),
            "kept": Handler("get", self._checked(self._answer_kept), repeatable=True),
            "leave": Handler("get", self._leave),
        }

    def _checked(self, handle: Callable[[Request], None]) -> Callable[[Request], None]:
        def checked(request: Request) -> None:
            if self._failure:
                request.refuse(self._failure)
            else:
                handle(request)

        return checked

    # --- life -----------------------------------------------------------------------------------------

    @property
    def is_restored(self) -> bool:
        """True if there is the state of a server that was killed, to go on with."""
        return self.journal is not None and self.journal.manifest is not None

    def serve(self) -> None:
        """Serve until all trainers have left, or `stop` is called."""
        self._restore()
        watcher = threading.Thread(target=self._watch, name="ps-watch", daemon=True)
        watcher.start()
        try:
            self.listener.serve()
        finally:
            self._over.set()
            watcher.join()
            if self._others is not None:
                self._others.close()
            if self.journal is not None:
                if self.is_initialised and not self._failure:
                    self._snapshot()
                self.journal.close()
            for table in self.tables.values():
                table.close()
            if self._spilled is not None:
                self._spilled.cleanup()
        if self._failure:
            raise ProgramError(self._failure)

    def stop(self) -> None:
        self.listener.stop()

    def _watch(self) -> None:
        """Twice a second: tell those who wait for whom, and write what is due."""
        while not self._over.wait(_TICK_S):
            now = time.monotonic()
            self._look_for_unheard(now)
            for trainer, since in list(self._silent.items()):
                if (
                    trainer in self.live
                    and now - since > 3 * self.settings.silent_s
                    and self._failed_at is None
                ):
                    self.on_silent(trainer)
            if self._is_over(now) or (self._failed_at is not None and now - self._failed_at > _LINGER_S):
                self.stop()
                return
            if now - self._told >= _TELL_S:
                self._told = now
                self._tell()
            is_due = self.plan.mode != "sync" and now - self._saved >= self._snapshot_s
            if self.journal is not None and self.is_initialised and is_due:
                try:
                    self._snapshot()
                except OSError as e:
                    self._saved = now
                    logger.error(
                        "the state could not be written: %s; the next try is in %g s", e, self._snapshot_s
                    )

    def _tell(self) -> None:
        with self._lock:
            late = _named(self._round.missing(self.live - self._paused.keys()))
            for request in self._round.waiting():
                request.tell(f"waits for {late}")
            for _, request, _ in self._held:
                request.tell(f"waits for {late}" if self.is_initialised else "waits for the first values")
            for request in self._paused.values():
                request.tell("waits in a meeting")
            for key, request in self._meeting:
                request.tell(f"{key[1]}: waits for {_named(self._meetings.missing(key), key[0])}")
            for box, request in self._takers.items():
                request.tell(f"{box[0]}: waits for {_named(sorted(self.live - self._boxes[box].keys()))}")

    def on_silent(self, trainer: int) -> None:
        """A trainer has not been heard for long: go on without it, or end the job."""
        if trainer not in self.live:
            return
        times = 4 if trainer in self._silent else 1
        text = f"trainer {trainer} has been silent for {times * self.settings.silent_s:g} s"
        if self._drops_dead:
            logger.warning("%s; going on without it", text)
            self._without(trainer)
            return
        if self._stays and trainer not in self._silent:  # a launcher may start it anew, or end the job
            logger.warning("%s", text)
            self._silent[trainer] = time.monotonic()
            return
        self._fail(
            f"{text}, so the job cannot go on; see its workerlog, start it anew (fleetrun --max_restarts=N) or let the "
            "others go on without it (fleetrun --dead_worker=drop)"
        )

    def _without(self, trainer: int) -> None:
        """Nobody waits for this trainer any more."""
        with self._lock:
            self.live.discard(trainer)
            self._round.forget(trainer)
        self._advance()
        self._meetings.check()
        self._deliver()
        if not self.live:
            self._empty_since = time.monotonic()

    def _look_for_unheard(self, now: float) -> None:
        """A trainer that died while this server was being started anew is never heard."""
        if self._restored_at is None or now - self._restored_at < self.settings.silent_s:
            return
        self._restored_at = None
        for trainer in self.live - self.listener.alive().keys():
            self.on_silent(trainer)

    def _is_over(self, now: float) -> bool:
        """True if all trainers have left, and have had time to get the answer: nobody is heard any more."""
        if self.live or self._stays or self._empty_since is None:
            return False
        quiet = all(heard > 2 * self.settings.heartbeat_s for heard in self.listener.alive().values())
        return quiet or now - self._empty_since > _LINGER_S

    def _hello(self, request: Request) -> None:
        hello = read(messages.Hello, request.meta)
        tables = [f"{t.name}[{t.dim}]" for t in self.plan.tables]
        given = (self.plan.described(), tables, list(self.plan.optimizers))
        ours = messages.Hello(self.plan.mode, self.plan.trainers, *given)
        for what in ("mode", "trainers", "blocks", "tables", "optimizers"):
            theirs, own = getattr(hello, what), getattr(ours, what)
            if theirs != own:
                raise ConfigError(
                    f"{request.who} and this server disagree on {_difference(what, theirs, own)}"
                )
        if not 0 <= request.trainer < self.plan.trainers:
            raise ConfigError(f"{request.who}: there are trainers 0 to {self.plan.trainers - 1}")
        with self._lock:
            trainer = request.trainer
            back = self._paused.pop(trainer, None)
            self._silent.pop(trainer, None)
            if trainer not in self.live:
                logger.warning("trainer %d is back", trainer)
                self.live.add(trainer)
                self.left.discard(trainer)
            if self._lives.get(trainer) != request.client:
                if trainer in self._lives:
                    logger.log(
                        NOTICE, "trainer %d has begun anew (or two processes have this number)", trainer
                    )
                self._lives[trainer] = request.client
                self._round.forget(trainer)
            next_step = self._round.step + (1 if self._round.has_all_of(trainer) else 0)
            if self.plan.mode not in ("sync", "half_async"):
                next_step = 1
        if back is not None and not back.is_answered:
            back.answer()
        request.answer(messages.meta(messages.Welcome(next_step, self.is_initialised)))

    def _pause(self, request: Request) -> None:
        """Answered when the trainer is back, so that a server that is started anew is told again."""
        read(messages.Pause, request.meta)
        with self._lock:
            self._paused[request.trainer] = request
        self._advance()

    def _keep(self, request: Request) -> None:
        message = read(messages.Keep, request.meta)
        with self._lock:
            if not self.is_initialised:
                self.kept = dict(zip(message.names, [t.clone() for t in request.tensors], strict=True))
        request.answer()

    def _answer_kept(self, request: Request) -> None:
        read(messages.Kept, request.meta)
        self._when(0, request, lambda r: r.answer({"names": list(self.kept)}, list(self.kept.values())))

    def _leave(self, request: Request) -> None:
        request.answer()
        logger.log(NOTICE, "trainer %d has left after step %d", request.trainer, self.step)
        with self._lock:
            self.left.add(request.trainer)
            if self.journal is not None and self.journal.manifest is not None:
                self.journal.append("left", {"trainer": request.trainer}, [])
        self._without(request.trainer)

    # --- gradients ------------------------------------------------------------------------------------

    def _initialise(self, request: Request) -> None:
        message = read(messages.Initialise, request.meta)
        with self._lock:
            if not self.is_initialised:
                values = self.updater.values()
                for name, value in zip(message.blocks, request.tensors, strict=True):
                    _block(values, name).copy_(value.view_as(values[name]))
                self.updater.initialised()
                self._begin()
        request.answer()

    def _begin(self) -> None:
        """There are values now: keep them, and answer those who wait for them."""
        self.is_initialised = True
        if self.journal is not None:
            self._snapshot()
        self._release()

    def _is_elsewhere(self, step: int, request: Request, handle: Callable[[Request], None]) -> bool:
        """True: the step is not the one under way.

        It may have been done before, in another life of the trainer or of this server. Or it is the next one, of a
        trainer that was started anew after it had sent all of this one: it is handled when it is its turn.
        """
        trainer = request.trainer
        if self._lives.get(trainer, request.client) != request.client:
            raise ConfigError(f"trainer {trainer} has begun anew; this is a message of its former life")
        if trainer not in self.live:
            raise ConfigError(
                f"trainer {trainer} was silent for so long that it was dropped; start it anew, and it takes part again"
            )
        if step <= self.step:
            request.answer({"steps": self.step})
            return True
        if step < self._round.step:  # it is being done
            self._held.append((step, request, handle))
            return True
        if step > self._round.step and self.plan.mode == "half_async":  # its last snapshot was older
            self._round, self.step = Round(step), step - 1
            return False
        if step == self._round.step + 1 and self._round.has_all_of(request.trainer):
            self._held.append((step - 1, request, handle))
            return True
        if step > self._round.step:
            raise ConfigError(
                f"{request.who} sends step {step}, and this server has done {self.step}: it was started anew without "
                "its state; let fleetrun keep it (--max_restarts or --server_state), or start the whole job anew"
            )
        return False

    def _push(self, request: Request) -> None:
        message = read(messages.Push, request.meta)
        values = self.updater.values()
        gradients = {
            name: _fitting(name, value, _block(values, name))
            for name, value in zip(message.blocks, request.tensors, strict=True)
        }
        rates = dict(zip(message.blocks, message.rates, strict=True))
        if self.plan.mode == "sync":
            with self._lock:
                if self._is_elsewhere(message.step, request, self._push):
                    return
                mine = self._round.of(request.trainer, request.client)
                mine.gradients |= gradients
                mine.rates |= rates
                self._note_push(mine, request)
            self._advance()
            return
        for name, gradient in gradients.items():
            backup = self._backups.get((request.trainer, name))
            if self.plan.compensation is not None and backup is None:
                backup = values[name].clone()
            with self._block_locks[name]:
                self.updater.apply_block(name, gradient, rates[name], backup)
        self._applied(message.step, request)

    def _push_rows(self, request: Request) -> None:
        message = read(messages.PushRows, request.meta)
        table, (ids, rows) = self._table(message.table), request.tensors
        wrong = ids.ndim != 1 or ids.dtype != torch.int64 or rows.dtype != torch.float32
        if wrong or rows.shape != (len(ids), table.spec.dim):
            raise ConfigError(
                f"rows of {message.table!r} are {list(rows.shape)} for {list(ids.shape)} ids; they must be "
                f"[{len(ids)}, {table.spec.dim}] for int64 ids"
            )
        if self.plan.mode == "sync":
            with self._lock:
                if self._is_elsewhere(message.step, request, self._push_rows):
                    return
                mine = self._round.of(request.trainer, request.client)
                mine.rows.setdefault(message.table, []).append((ids, rows))
                mine.row_rates[message.table] = message.rate
                self._note_push(mine, request)
            self._advance()
            return
        if self.plan.mode == "geo":
            table.add(ids, rows)
        else:
            table.push(ids, rows, message.rate)
        self._applied(message.step, request)

    def _barrier(self, request: Request) -> None:
        message = read(messages.Barrier, request.meta)
        with self._lock:
            if self._is_elsewhere(message.step, request, self._barrier):
                return
            mine = self._round.of(request.trainer, request.client)
            mine.wanted = message.pushes
            mine.waiting.append(request)
        self._advance()

    def _note_push(self, mine: Contribution, request: Request) -> None:
        """Handlers run beside each other: the barrier may have been handled before a push that was sent before it."""
        mine.pushes += 1
        mine.waiting.append(request)

    def _applied(self, step: int, request: Request) -> None:
        """Answer a push that is done; under half_async a trainer's step is complete when all of them are."""
        if self.plan.mode == "half_async":
            with self._lock:
                if step == self._round.step:
                    self._round.of(request.trainer, request.client).pushes += 1
            self._advance()
        request.answer({"steps": self.step})

    def _advance(self) -> None:
        """Do the step if every live trainer has sent all of it; to be called without the lock.

        An update may wait for other servers, and these for trainers that want an answer from this one.
        """
        while True:
            with self._lock:
                if self._is_applying or not self._round.is_ready(self.live - self._paused.keys()):
                    return
                done, self._round = self._round, Round(self._round.step + 1)
                self._is_applying = True
            try:
                if self.plan.mode == "sync":
                    update = done.update()
                    self._apply(update)
                    self._write(update)
            except Exception as e:
                self._fail(f"step {done.step} failed on server {self.number}: {type(e).__name__}: {e}", done)
                logger.exception("step %d failed", done.step)
                return
            with self._lock:
                self._is_applying, self.step = False, done.step
            for request in done.waiting():
                request.answer({"steps": self.step})
            self._release()

    def _fail(self, text: str, under_way: Round | None = None) -> None:
        """The job cannot go on: tell everybody who waits, and end soon."""
        self._failure, self._failed_at = text, time.monotonic()
        logger.error("%s", text)
        with self._lock:
            waiting = [*self._round.waiting(), *(held[1] for held in self._held), *self._takers.values()]
            waiting += under_way.waiting() if under_way else []
            for request in [*waiting, *(one for _, one in self._meeting), *self._paused.values()]:
                if not request.is_answered:
                    request.refuse(text)
            self._held = []

    def _apply(self, update: Update) -> None:
        self._totals = {}
        self.updater.apply(update.gradients, update.rates)
        for name, (ids, rows) in update.rows.items():
            self.tables[name].push(ids, rows, update.row_rates[name])

    def _write(self, update: Update) -> None:
        if self.journal is None:
            return
        meta = {
            "step": update.step,
            "blocks": list(update.gradients),
            "rates": update.rates,
            "tables": list(update.rows),
            "row_rates": update.row_rates,
        }
        rows = [tensor for pair in update.rows.values() for tensor in pair]
        meta["totals"] = list(self._totals)
        with self._lock:
            totals = list(self._totals.values())
            self.journal.append("step", meta, [*update.gradients.values(), *rows, *totals])
        size = sum(t.nbytes for t in self.updater.state().values())
        if self.journal.log_bytes > max(_LOG_BYTES, 4 * size):
            self.step = update.step
            self._snapshot()

    # --- values ---------------------------------------------------------------------------------------

    def _when(self, after: int, request: Request, answer: Callable[[Request], None]) -> None:
        """Answer once a step is done, and there are values."""
        with self._lock:
            is_ready = self.is_initialised and (self.plan.mode in ("async", "geo") or after <= self.step)
            if not is_ready:
                self._held.append((after, request, answer))
                return
        answer(request)

    def _release(self) -> None:
        with self._lock:
            held, self._held = self._held, []
        for after, request, answer in held:
            try:
                self._when(after, request, answer)
            except Exception as e:  # one that is wrong must not take the others with it
                if not request.is_answered:
                    request.refuse(f"{type(e).__name__}: {e}")

    def _pull(self, request: Request) -> None:
        message = read(messages.Pull, request.meta)
        values = self.updater.values()
        for name in message.blocks:
            _block(values, name)

        def answer(request: Request) -> None:
            found = [self.updater.values()[name].detach() for name in message.blocks]
            if self.plan.compensation is not None:
                copies = found = [value.clone() for value in found]
                self._backups.update(
                    {(request.trainer, n): c for n, c in zip(message.blocks, copies, strict=True)}
                )
            request.answer({"steps": self.step}, found)

        if self.plan.mode == "async":
            with self._lock:
                self.step += message.steps
        self._when(message.after, request, answer)

    def _pull_rows(self, request: Request) -> None:
        message = read(messages.PullRows, request.meta)
        table, (ids,) = self._table(message.table), request.tensors
        self._when(
            message.after, request, lambda request: request.answer({}, [table.pull(ids, message.create)])
        )

    def _pull_changes(self, request: Request) -> None:
        message = read(messages.PullChanges, request.meta)
        key = (request.trainer, message.table)
        ids, rows, self._marks[key] = self._table(message.table).changed_since(self._marks.get(key, 0))
        request.answer({}, [ids, rows])

    def _table(self, name: str) -> SparseTable:
        if name not in self.tables:
            raise ConfigError(f"this server has no table {name!r}; it has {sorted(self.tables) or 'none'}")
        return self.tables[name]

    # --- meeting --------------------------------------------------------------------------------------

    def _meet(self, request: Request) -> None:
        message = read(messages.Meet, request.meta)
        if message.group != "trainers":
            raise ConfigError(f"there is no group {message.group!r}; use trainers")

        def found(result: list[list[Tensor]]) -> None:
            counts = [len(tensors) for tensors in result]
            request.answer({"counts": counts}, [tensor for tensors in result for tensor in tensors])

        key = (message.group, message.name, message.number)
        if message.group == "trainers" and message.member != request.trainer:
            raise ConfigError(
                f"{request.who} comes to a meeting as trainer {message.member}; programs differ in version"
            )
        self._meeting = [(k, r) for k, r in self._meeting if not r.is_answered] + [(key, request)]
        self._meetings.join(key, message.member, request.tensors, found)

    def total(self, values: Tensor, group: int) -> Tensor:
        """The sum over the servers of what each of them brings in this step, in the order of their numbers."""
        number = (self._round.step - 1) * _GROUPS + group
        if self._replayed:
            self._totals[number] = self._replayed.pop(0)
        else:
            ask = self._local_total if self.number == 0 else self._asked_total
            self._totals[number] = ask(number, group, values)
        self._known_totals[number] = self._totals[number]
        while len(self._known_totals) > _KEPT_TOTALS:
            del self._known_totals[next(iter(self._known_totals))]
        return self._totals[number].clone()

    def _asked_total(self, number: int, group: int, values: Tensor) -> Tensor:
        """On the other servers: from server 0."""
        if self._others is None:
            self._others = Client(self.plan.endpoints[:1], f"server {self.number}", -1, self.settings)
        meta = messages.meta(messages.Total(number, group, self.number))
        answer = self._others.call(0, "total", meta, [values], what="the norm of all gradients")
        return answer.tensors[0].clone()

    def _local_total(self, number: int, group: int, values: Tensor) -> Tensor:
        """On server 0: when all have brought theirs, or from one that has it from a former life of this server."""
        arrived, found = threading.Event(), list[Tensor]()

        def note(result: list[list[Tensor]]) -> None:
            found.append(_sum([tensors[0] for tensors in result]))
            arrived.set()

        self._meetings.join(("servers", str(group), number), 0, [values], note)
        while not arrived.wait(_ASK_S):
            if self.listener.is_stopped:
                raise ConfigError("the server ends while it waits for the other servers")
            if (known := self._total_of_others(number)) is not None:
                return known
        return found[0]

    def _total_of_others(self, number: int) -> Tensor | None:
        if self._others is None:
            self._others = Client(self.plan.endpoints[1:], "server 0", -1, self.settings)
        for server in range(len(self.plan.endpoints) - 1):
            reply = self._others.start(server, "known_total", messages.meta(messages.KnownTotal(number)))
            answer = reply.wait("a norm that it may know")
            if answer.tensors:
                return answer.tensors[0].clone()
        return None

    def _total_for(self, request: Request) -> None:
        message = read(messages.Total, request.meta)
        if message.number in self._known_totals:
            request.answer({}, [self._known_totals[message.number]])
            return

        def found(result: list[list[Tensor]]) -> None:
            request.answer({}, [_sum([tensors[0] for tensors in result])])

        key = ("servers", str(message.group), message.number)
        self._meetings.join(key, message.member, request.tensors, found)

    def _known_total(self, request: Request) -> None:
        number = read(messages.KnownTotal, request.meta).number
        request.answer({}, [self._known_totals[number]] if number in self._known_totals else [])

    def _post(self, request: Request) -> None:
        message = read(messages.Post, request.meta)
        self._boxes[message.box, message.to][request.trainer] = request.tensors[0]
        request.answer()
        self._deliver()

    def _take(self, request: Request) -> None:
        message = read(messages.Take, request.meta)
        self._takers[message.box, request.trainer] = request
        self._deliver()

    def _deliver(self) -> None:
        for key, request in list(self._takers.items()):
            if self.live <= self._boxes[key].keys():
                del self._takers[key]
                request.answer({}, [piece for _, piece in sorted(self._boxes.pop(key).items())])

    # --- keeping --------------------------------------------------------------------------------------

    def _state(self, request: Request) -> None:
        state = self.updater.state()
        meta = {"names": list(state), "origins": self.updater.origins()}
        request.answer(meta, [value.detach() for value in state.values()])

    def _save(self, request: Request) -> None:
        message = read(messages.Save, request.meta)
        for name, table in self.tables.items():
            directory = Path(message.directory) / f"{name}_txt"
            directory.mkdir(parents=True, exist_ok=True)
            table.save_text(directory, self.number)
        request.answer()

    def _snapshot(self) -> None:
        assert self.journal is not None, "there is nowhere to write to"
        # Under sync the step waits; else what comes meanwhile may be in it or not.
        with self._lock if self.plan.mode == "sync" else nullcontext():
            tables: dict[str, Any] = {}
            for name, table in self.tables.items():
                path = self.journal.tables / table.spec.file_name
                path.mkdir(parents=True, exist_ok=True)
                table.snapshot(path)
                tables[name] = table.state()
            state = {**self.updater.state(), **{f"{_KEPT}{n}": t for n, t in self.kept.items()}}
            totals = {str(number): total.item() for number, total in self._known_totals.items()}
            more = {"tables": tables, "left": sorted(self.left), "totals": totals}
            self.journal.snapshot(self.step, state, more)
            self._saved = time.monotonic()

    def _restore(self) -> None:
        """Go on where a server that was killed has ended."""
        if self.journal is None:
            return
        if self.journal.manifest is None:
            if self.is_initialised:
                self._snapshot()
            return
        manifest = self.journal.manifest
        state = self.journal.state()
        self.kept = {n.removeprefix(_KEPT): t for n, t in state.items() if n.startswith(_KEPT)}
        self.updater.load({n: t for n, t in state.items() if not n.startswith(_KEPT)})
        for name, table in self.tables.items():
            table.restore(self.journal.tables / table.spec.file_name, manifest["tables"].get(name, []))
        self._known_totals = {int(n): torch.tensor(v) for n, v in manifest["totals"].items()}
        self.step, self.left, count = manifest["step"], set(manifest["left"]), 0
        for record, tensors in self.journal.records():
            count += 1
            if record.kind == "left":
                self.left.add(record.meta["trainer"])
            else:
                self._replay(record.meta, tensors)
        self.live -= self.left
        self._round, self.is_initialised = Round(self.step + 1), True
        self._restored_at = time.monotonic()
        logger.warning(
            "server %d goes on after step %d: snapshot of step %d and %d records",
            *(self.number, self.step, manifest["step"], count),
        )
        self._snapshot()

    def _replay(self, meta: dict[str, Any], tensors: list[Tensor]) -> None:
        blocks, tables = meta["blocks"], meta["tables"]
        rest = tensors[len(blocks) :]
        rows = {name: (rest[2 * i], rest[2 * i + 1]) for i, name in enumerate(tables)}
        self._replayed = rest[2 * len(tables) :]
        self._round = Round(meta["step"] + 1)  # as it is while a step is done
        gradients = dict(zip(blocks, tensors, strict=False))
        self._apply(Update(meta["step"], gradients, meta["rates"], rows, meta["row_rates"]))
        self.step = meta["step"]


_current: Service | None = None


def current() -> Service:
    """The server that this process is."""
    assert _current is not None, "only a server runs a server's program"
    return _current


def set_current(service: Service | None) -> None:
    global _current  # noqa: PLW0603  (a process is one server)
    _current = service


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _named(numbers: list[int], group: str = "trainers") -> str:
    """trainers 1, 3"""
    return f"{group if len(numbers) != 1 else group[:-1]} {', '.join(map(str, numbers))}"


def _block(values: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in values:
        raise ConfigError(f"this server has no block {name!r}; it has {', '.join(sorted(values)) or 'none'}")
    return values[name]


def _fitting(name: str, gradient: Tensor, value: Tensor) -> Tensor:
    if gradient.numel() != value.numel() or gradient.dtype != value.dtype:
        raise ConfigError(
            f"block {name!r} is {value.dtype}{list(value.shape)} and was sent {gradient.dtype}{list(gradient.shape)}; "
            "trainers and servers must build the same program"
        )
    return gradient.view(value.shape)


def _difference(what: str, theirs: Any, own: Any) -> str:
    if isinstance(own, list):
        only = sorted(set(theirs) ^ set(own))
        named = f"{only[0]!r} is on one side only" if only else "their order differs"
        return f"{what}: {named}; build the same program with the same settings in every process"
    return f"{what}: {theirs!r} and {own!r}; transpile both with the same arguments (or strategy)"
