"""A trainer's side of a job with parameter servers: what the nodes of its program do.

    send ─▶ push, push, …   (small gradients together)      each server answers when it has done the step
    send_barrier ─▶ barrier                                  "that was all of step 7"
    recv, fetch_barrier ─▶ pull after step 7                 ◀─ values, copied into the parameters

All of a step's requests are on their way before the first answer is awaited. A gradient is kept, unchanged, until
its push is answered: if the server dies before, the client sends it again to its successor.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import Tensor

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ps import messages
from argosy.engine.ps.geo import GeoCache, Snapshot
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.client import Client, Reply
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.slicing import Block
from argosy.engine.ps.table.table import merge_rows

_PACKED = 1 << 18
"""Gradients of one server are sent together up to so many bytes."""
Tensors = Sequence[Tensor]


@dataclass
class _Want:
    """A parameter, or a part of it, to be filled."""

    into: Tensor
    block: str
    server: int


@dataclass(eq=False)
class _Batch:
    """The ids of a lookup: each once, and where each of the batch's ids is among them."""

    flat: Tensor
    unique: Tensor
    inverse: Tensor
    replies: list[tuple[Tensor | None, Reply]] = field(default_factory=list)
    """(places among the unique ids, answer with their rows); None: all of them."""


@dataclass
class _Step:
    """What one thread has under way."""

    packed: dict[int, list[tuple[str, float, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    bytes: Counter[int] = field(default_factory=Counter)
    replies: list[tuple[str, Reply]] = field(default_factory=list)
    wants: list[_Want] = field(default_factory=list)
    batches: dict[str, _Batch] = field(default_factory=dict)
    ahead: dict[str, list[_Batch]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[str, tuple[int, float, Tensor]] = field(default_factory=dict)
    """async: (server, rate, sum) of blocks whose gradients are not sent yet."""
    row_sums: dict[str, tuple[float, list[tuple[Tensor, Tensor]]]] = field(default_factory=dict)
    steps: int = 0
    told: int = 0
    """How many of the steps the servers know of."""
    pushes: Counter[int] = field(default_factory=Counter)
    """How many messages each server gets in this step before the barrier."""


class Trainer:
    """The connection of this process to the servers of one job."""

    def __init__(self, plan: Plan, number: int, settings: Settings | None = None) -> None:
        self.plan, self.number = plan, number
        self.client = Client(plan.endpoints, f"trainer {number}", number, settings or Settings.from_env())
        self._local = threading.local()
        self._meetings: Counter[str] = Counter()
        self._caches: dict[str, GeoCache] = {}
        self._geo = Snapshot()
        self._geo_steps = 0
        self._geo_lock = threading.RLock()
        self.global_step = 0
        """async: how many steps all trainers have done, as far as the servers have told."""
        try:
            self.next_step, self.is_initialised = self._greet()
        except BaseException:
            self.client.close()
            raise

    @property
    def _step(self) -> _Step:
        if not hasattr(self._local, "step"):
            self._local.step = _Step()
        return self._local.step  # type: ignore[no-any-return]

    def _all(self, message: msgspec.Struct, what: str) -> list[dict[str, Any]]:
        """Tell every server the same; returns their answers in order."""
        kind = _kind(message)
        replies = [
            self.client.start(s, kind, messages.meta(message)) for s in range(len(self.plan.endpoints))
        ]
        return [reply.wait(what).meta for reply in replies]

    def _greet(self) -> tuple[int, bool]:
        tables = [f"{table.name}[{table.dim}]" for table in self.plan.tables]
        given = (self.plan.described(), tables, list(self.plan.optimizers))
        hello = messages.Hello(self.plan.mode, self.plan.trainers, *given)
        found = [read(messages.Welcome, answer) for answer in self._all(hello, "the first word")]
        return min(w.next_step for w in found), all(w.is_initialised for w in found)

    # --- dense ----------------------------------------------------------------------------------------

    def initialise(self, values: Mapping[str, Tensor]) -> None:
        """Give the servers the first values of the dense variables; those that have values keep them."""
        for server in range(len(self.plan.endpoints)):
            blocks = list(self.plan.blocks_of(server))
            parts = [part_of(values[v.name].detach(), b).contiguous() for v, b in blocks]
            message = messages.Initialise([b.name for _, b in blocks])
            self.client.call(server, "initialise", messages.meta(message), parts)
        self.is_initialised = True

    def send(
        self, grad: Tensor, rate: float, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]
    ) -> None:
        """Send a gradient, cut into its blocks."""
        parts = grad.split(list(rows)) if len(blocks) > 1 else [grad]
        for block, part, server in zip(blocks, parts, servers, strict=True):
            if self.plan.merged_steps > 1:
                part = self._merged(server, block, rate, part)  # noqa: PLW2901
                if not self._sends_now():
                    continue
            self._pack(server, block, rate, part.contiguous())

    def _merged(self, server: int, block: str, rate: float, part: Tensor) -> Tensor:
        sums = self._step.sums
        summed = part.clone() if block not in sums else sums[block][2].add_(part)
        sums[block] = (server, rate, summed)
        return sums.pop(block)[2] if self._sends_now() else part

    def _send_rest(self) -> None:
        """async: what has been added up and is not sent yet."""
        step = self._step
        for block, (server, rate, summed) in step.sums.items():
            self._pack(server, block, rate, summed.contiguous())
        step.sums.clear()
        for table, (rate, parts) in step.row_sums.items():
            self._send_rows(table, *merge_rows(parts, 1.0), rate)
        step.row_sums.clear()
        for server in range(len(self.plan.endpoints)):
            self._flush(server)
        self._await(step.replies)
        step.replies = []

    def _sends_now(self) -> bool:
        return (self._step.steps + 1) % self.plan.merged_steps == 0

    def _pack(self, server: int, block: str, rate: float, part: Tensor) -> None:
        step = self._step
        step.packed[server].append((block, rate, part))
        step.bytes[server] += part.nbytes
        if step.bytes[server] >= _PACKED:
            self._flush(server)

    def _flush(self, server: int) -> None:
        step = self._step
        packed = step.packed.pop(server, [])
        step.bytes[server] = 0
        if packed:
            names, rates, parts = [p[0] for p in packed], [p[1] for p in packed], [p[2] for p in packed]
            message = messages.Push(self.next_step, names, rates)
            reply = self.client.start(server, "push", messages.meta(message), parts)
            step.pushes[server] += 1
            step.replies.append((f"push of {names[0]}" + (" and others" if len(names) > 1 else ""), reply))

    def end_step(self) -> None:
        """All gradients of this step have been given."""
        step = self._step
        for server in range(len(self.plan.endpoints)):
            self._flush(server)
            if self.plan.mode in ("sync", "half_async"):
                meta = messages.meta(messages.Barrier(self.next_step, step.pushes[server]))
                reply = self.client.start(server, "barrier", meta)
                step.replies.append((f"barrier of step {self.next_step}", reply))
        step.steps += 1

    def want(self, into: Tensor, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]) -> None:
        """Note that a parameter is wanted; `fetch` gets all of them."""
        parts = into.split(list(rows)) if len(blocks) > 1 else [into]
        self._step.wants += [_Want(*one) for one in zip(parts, blocks, servers, strict=True)]

    def fetch(self) -> None:
        """Return when the step is done and all that is wanted has come."""
        step = self._step
        wants, step.wants = step.wants, []
        ended, step.replies = step.replies, []
        is_async = self.plan.mode == "async" and step.steps % self.plan.pull_every
        done = self.next_step if ended and self.plan.mode in ("sync", "half_async") else self.next_step - 1
        if self.plan.mode == "async":
            self._await(ended)  # servers handle pulls beside pushes: a pull would overtake one's own push
        pulls = [] if is_async else self._pull(wants, max(done, 0))
        if self.plan.mode != "async":
            self._await(ended)
        for group, reply in pulls:
            for want, value in zip(group, reply.wait(f"pull of {group[0].block}").tensors, strict=True):
                want.into.copy_(value)
        self.next_step = done + 1
        step.pushes.clear()

    def _await(self, replies: list[tuple[str, Reply]]) -> None:
        for what, reply in replies:
            meta = reply.wait(what).meta
            self.global_step = max(self.global_step, int(meta.get("steps", 0)))

    def _pull(self, wants: list[_Want], after: int) -> list[tuple[list[_Want], Reply]]:
        groups: dict[int, list[_Want]] = defaultdict(list)
        for want in wants:
            groups[want.server].append(want)
        step = self._step
        done, step.told = step.steps - step.told, step.steps
        return [
            (
                group,
                self.client.start(
                    s, "pull", messages.meta(messages.Pull(after, [w.block for w in group], done))
                ),
            )
            for s, group in groups.items()
        ]

    # --- tables ---------------------------------------------------------------------------------------

    def lookup(self, table: str, ids: Tensors) -> list[Tensor]:
        """The rows of these ids, each as a tensor of the shape of the ids and one dimension more."""
        step = self._step
        flat = torch.cat([one.reshape(-1) for one in ids]).to(torch.int64)
        known = step.ahead[table]
        batch = next((b for b in known if torch.equal(b.flat, flat)), None)
        if batch is None:
            batch = self._start_lookup(table, flat, self.next_step - 1)
        else:
            known.remove(batch)
        step.batches[table] = batch
        dim = self.plan.table(table).dim
        rows = self._rows(table, batch, dim).index_select(0, batch.inverse)
        parts = rows.split([one.numel() for one in ids])
        return [part.view(*one.shape, dim) for part, one in zip(parts, ids, strict=True)]

    def prefetch(self, table: str, ids: Tensors) -> None:
        """Ask for the rows of the next batch now, to have them when they are looked up."""
        flat = torch.cat([torch.as_tensor(one).reshape(-1) for one in ids]).to(torch.int64)
        known = self._step.ahead[table]
        known.append(self._start_lookup(table, flat, self.next_step))
        del known[:-2]  # the one that is run now was asked for before

    def _start_lookup(self, table: str, flat: Tensor, after: int) -> _Batch:
        unique, inverse = torch.unique(flat, return_inverse=True)
        batch = _Batch(flat, unique, inverse)
        if self.plan.mode != "geo":
            batch.replies = self._ask_rows(table, unique, after)
        return batch

    def _ask_rows(
        self, table: str, unique: Tensor, after: int = 0, create: bool = True
    ) -> list[tuple[Tensor | None, Reply]]:
        meta = messages.meta(messages.PullRows(after, table, create))
        return [
            (places, self.client.start(server, "pull_rows", meta, [ids]))
            for server, places, ids in self._shards(unique)
        ]

    def _shards(self, unique: Tensor) -> list[tuple[int, Tensor | None, Tensor]]:
        """(server, places among the ids, ids) of each server that has some."""
        servers = len(self.plan.endpoints)
        if servers == 1:
            return [(0, None, unique)]
        owner = unique.remainder(servers)
        found = [(s, (owner == s).nonzero().view(-1)) for s in range(servers)]
        return [(s, places, unique[places]) for s, places in found if places.numel()]

    def _rows(self, table: str, batch: _Batch, dim: int) -> Tensor:
        if self.plan.mode == "geo":
            with self._geo_lock:
                return self._cache(table).pull(batch.unique)
        return _gathered(batch, dim, f"rows of {table}")

    def push_rows(self, table: str, ids: Tensors, grads: Tensors, rate: float) -> None:
        """Send the gradients of the rows that were looked up, those of one id added up."""
        batch = self._batch(table, ids)
        dim = self.plan.table(table).dim
        flat = torch.cat([grad.reshape(-1, dim) for grad in grads])
        summed = flat.new_zeros(len(batch.unique), dim).index_add_(0, batch.inverse, flat)
        if self.plan.mode == "geo":
            with self._geo_lock:
                self._cache(table).push(batch.unique, summed, rate)
            return
        unique = batch.unique
        if self.plan.merged_steps > 1:
            parts = [*self._step.row_sums.pop(table, (rate, []))[1], (unique, summed)]
            if not self._sends_now():
                self._step.row_sums[table] = (rate, parts)
                return
            unique, summed = merge_rows(parts, 1.0)
        self._send_rows(table, unique, summed, rate)

    def _send_rows(self, table: str, unique: Tensor, summed: Tensor, rate: float) -> None:
        meta = messages.meta(messages.PushRows(self.next_step, table, rate))
        for server, places, owned in self._shards(unique):
            part = summed if places is None else summed[places]
            reply = self.client.start(server, "push_rows", meta, [owned, part])
            self._step.pushes[server] += 1
            self._step.replies.append((f"push of rows of {table}", reply))

    def _batch(self, table: str, ids: Tensors) -> _Batch:
        """The batch of the lookup before, if it was of the same ids."""
        flat = torch.cat([one.reshape(-1) for one in ids]).to(torch.int64)
        batch = self._step.batches.pop(table, None)
        if batch is None or not torch.equal(batch.flat, flat):
            unique, inverse = torch.unique(flat, return_inverse=True)
            batch = _Batch(flat, unique, inverse)
        return batch

    # --- geo ------------------------------------------------------------------------------------------

    def geo_step(self, params: Tensors, names: Sequence[str]) -> None:
        """After every k-th step: send what has changed here, and take what others have changed."""
        with self._geo_lock:
            self._geo_steps += 1
            if self._geo_steps % self.plan.k_steps == 0:
                self.geo_exchange(dict(zip(names, params, strict=True)))

    def geo_exchange(self, params: Mapping[str, Tensor]) -> None:
        """One exchange of changes: dense parameters, then the rows of each table."""
        pushed = self._geo.changes(params, self.plan.trainers)
        for variable in self.plan.dense:
            for block in variable.blocks:
                self._pack(block.server, block.name, 1.0, part_of(pushed[variable.name], block).contiguous())
        for server in range(len(self.plan.endpoints)):
            self._flush(server)
        for what, reply in self._step.replies:
            reply.wait(what)
        self._step.replies = []
        fresh = {
            name: torch.empty_like(value, memory_format=torch.contiguous_format)
            for name, value in params.items()
        }
        self._want_all(fresh)
        self.fetch()
        self._geo.take(params, fresh)
        for cache in self._caches.values():
            cache.exchange()

    @property
    def remembers(self) -> bool:
        return bool(self._geo.old)

    def remember(self, params: Mapping[str, Tensor]) -> None:
        """geo: these are the servers' values; changes count from here."""
        self._geo.old = {name: value.detach().clone() for name, value in params.items()}

    def _want_all(self, values: Mapping[str, Tensor]) -> None:
        for variable in self.plan.dense:
            names = [block.name for block in variable.blocks]
            self.want(values[variable.name], names, variable.rows, [b.server for b in variable.blocks])

    def pull(self, values: Mapping[str, Tensor]) -> None:
        """Fill these variables with what the servers have."""
        self._want_all(values)
        self.fetch()

    def _cache(self, table: str) -> GeoCache:
        if table not in self._caches:
            self._caches[table] = GeoCache(self, table)
        return self._caches[table]

    def ask_rows(self, table: str, unique: Tensor, create: bool = True) -> Tensor:
        """The servers' rows of these ids, now."""
        batch = _Batch(unique, unique, unique, self._ask_rows(table, unique, create=create))
        return _gathered(batch, self.plan.table(table).dim, f"rows of {table}")

    def add_rows(self, table: str, unique: Tensor, changes: Tensor) -> None:
        """Add to the servers' rows."""
        meta = messages.meta(messages.PushRows(self.next_step, table, 1.0))
        replies = [
            self.client.start(
                server, "push_rows", meta, [ids, changes if places is None else changes[places]]
            )
            for server, places, ids in self._shards(unique)
        ]
        for reply in replies:
            reply.wait(f"changes of {table}")

    def changed_rows(self, table: str) -> tuple[Tensor, Tensor]:
        """The rows that anybody has changed since this was called last."""
        meta = messages.meta(messages.PullChanges(table))
        servers = range(len(self.plan.endpoints))
        replies = [self.client.start(server, "pull_changes", meta) for server in servers]
        found = [reply.wait(f"changes of {table}").tensors for reply in replies]
        return torch.cat([ids for ids, _ in found]), torch.cat([rows for _, rows in found])

    # --- meeting the others ---------------------------------------------------------------------------

    def meet(self, name: str, tensors: Tensors = ()) -> list[list[Tensor]]:
        """Give tensors, get those of every trainer, in order. All trainers must call it, in the same order."""
        number = self._meetings[name]
        self._meetings[name] += 1
        message = messages.Meet(name, number, "trainers", self.number)
        with self._away():
            given = [t.contiguous() for t in tensors]
            answer = self.client.call(0, "meet", messages.meta(message), given, what=name)
        counts = answer.meta["counts"]
        parts = iter(answer.tensors)
        return [[next(parts).clone() for _ in range(count)] for count in counts]

    def exchange(self, parts: Sequence[bytes]) -> list[bytes]:
        """One piece of bytes for each trainer; returns one from each. All trainers call it together."""
        box = f"exchange {self._meetings['exchange']}"
        self._meetings["exchange"] += 1
        servers = len(self.plan.endpoints)
        replies = []
        for to, part in enumerate(parts):
            piece = torch.frombuffer(bytearray(part) or bytearray(1), dtype=torch.uint8)[: len(part)]
            replies.append(
                self.client.start(to % servers, "post", messages.meta(messages.Post(box, to)), [piece])
            )
        for reply in replies:
            reply.wait(box)
        with self._away():
            meta = messages.meta(messages.Take(box))
            found = self.client.call(self.number % servers, "take", meta, what=box)
        return [bytes(tensor.numpy().tobytes()) for tensor in found.tensors]

    @contextmanager
    def _away(self) -> Iterator[None]:
        """While this trainer waits in a meeting, trainers with more batches do their steps without it."""
        if self.plan.mode not in ("sync", "half_async") or self.plan.trainers == 1:
            yield
            return
        meta = messages.meta(messages.Pause())
        replies = [self.client.start(s, "pause", meta) for s in range(len(self.plan.endpoints))]
        yield
        self.next_step, _ = self._greet()
        for reply in replies:
            reply.wait("the end of a meeting")

    # --- state ----------------------------------------------------------------------------------------

    def keep(self, values: Mapping[str, Tensor]) -> None:
        """Leave values on server 0 that all trainers begin with."""
        message = messages.Keep(list(values))
        self.client.call(
            0, "keep", messages.meta(message), [v.detach().contiguous() for v in values.values()]
        )

    def kept(self) -> dict[str, Tensor]:
        """What was kept."""
        answer = self.client.call(0, "kept", {}, what="the first values")
        return {name: t.clone() for name, t in zip(answer.meta["names"], answer.tensors, strict=True)}

    def state(self) -> dict[str, Tensor]:
        """Everything dense that the servers keep, put together under the names of the program of one process."""
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for server in range(len(self.plan.endpoints)):
            answer = self.client.call(server, "state", {}, what="state")
            origins = answer.meta["origins"]
            for name, value in zip(answer.meta["names"], answer.tensors, strict=True):
                if name in origins:
                    whole, first = origins[name]
                    parts[whole].setdefault(first or 0, value.clone())
        return {name: _whole([part for _, part in sorted(found.items())]) for name, found in parts.items()}

    def save_tables(self, directory: str) -> None:
        """Let each server write its part of the tables."""
        self._all(messages.Save(directory), f"saving into {directory}")

    def leave(self) -> None:
        """Tell the servers that this trainer is done, and close."""
        self._send_rest()
        self._all(messages.Leave(), "leaving")
        self.close()

    def close(self) -> None:
        self.client.close()


def _gathered(batch: _Batch, dim: int, what: str) -> Tensor:
    if len(batch.replies) == 1 and batch.replies[0][0] is None:
        return batch.replies[0][1].wait(what).tensors[0]
    rows = torch.empty(len(batch.unique), dim)
    for places, reply in batch.replies:
        rows[places] = reply.wait(what).tensors[0]
    return rows


def part_of(value: Tensor, block: Block) -> Tensor:
    """The rows of a variable that are a block."""
    return value if block.is_whole else value[block.first : block.first + block.rows]


def _whole(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _kind(message: msgspec.Struct) -> str:
    return type(message).__name__.lower()


_current: Trainer | None = None


def current() -> Trainer:
    """The trainer that this process is."""
    if _current is None:
        raise ProgramError(
            "this program talks to parameter servers, and this process has no connection to them; run it with "
            "Executor.run, after fleet.init_worker() in a fleet job"
        )
    return _current


def is_connected() -> bool:
    return _current is not None


def connect(plan: Plan, number: int) -> Trainer:
    """The connection for this plan, made if it is not there yet."""
    global _current  # noqa: PLW0603  (a process is one trainer)
    if _current is not None:
        if (_current.plan, _current.number) == (plan, number):
            return _current
        if _current.plan.endpoints == plan.endpoints:
            raise ConfigError(
                f"this process is trainer {_current.number} of another program at {', '.join(plan.endpoints)}; a job "
                "trains one program: leave the servers first (exe.close(), fleet.stop_worker())"
            )
        _current.leave()
    _current = Trainer(plan, number)
    return _current


def disconnect() -> None:
    """Leave the servers, if there is a connection."""
    global _current
    if _current is not None:
        leaving, _current = _current, None
        leaving.leave()
