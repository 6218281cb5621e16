"""Collectives on a server: all-gathers and all-to-alls of the trainers, and sums over the servers.

All-gather: each member contributes tensors, and gets those of all when the last one has joined. A barrier is an
all-gather without tensors.

All-to-all of bytes:

send to 1 ─┐                                           a send gets no reply: after a restart of the server the client
send to 1 ─┼─▶ mailbox of trainer 1, full ─▶ recv      sends it again; the sender cancels it after the barrier that
send to 1 ─┘                                           follows the all-to-all, when all have received their data

Global norms of gradients that are sharded over several servers: server 0 reduces the servers' parts, in order.

server 1 ──reduce_norm(part)──▶ server 0 ──▶ sum, the same bits for all
server 2 ──reduce_norm(part)──▶

The last sums are cached, and logged with their step: a server that is killed and repeats the step queries the other
servers for the sum that they have already used.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import read
from argosy.engine.ps.rpc.client import Client, PendingReply
from argosy.engine.ps.rpc.server import Handler, Request
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.membership import Membership, named

Gathered = list[list[Tensor]]
"""The tensors of each member, in the order of the members' numbers."""
OnGathered = Callable[[Gathered], None]
CollectiveKey = tuple[str, int]
"""Name and sequence number of a collective."""
_MAX_RESULTS = 1000
_MAX_RESULT_BYTES = 64 << 20


class GatherResults:
    """The results of the last all-gathers: a restarted trainer runs its script again, and repeats all of them."""

    def __init__(self) -> None:
        self._by_key: dict[CollectiveKey, Gathered] = {}
        self._bytes = 0
        self._last: dict[str, int] = {}
        """By name, the highest sequence number."""

    def get(self, key: CollectiveKey) -> Gathered | None:
        return self._by_key.get(key)

    def add(self, key: CollectiveKey, result: Gathered) -> None:
        """Store a result; beyond a count and a size the oldest ones are evicted."""
        if key in self._by_key:
            return
        self._by_key[key] = result
        self._last[key[0]] = max(key[1], self._last.get(key[0], -1))
        self._bytes += _bytes(result)
        while len(self._by_key) > _MAX_RESULTS or (self._bytes > _MAX_RESULT_BYTES and len(self._by_key) > 1):
            self.remove(next(iter(self._by_key)))

    def remove(self, key: CollectiveKey) -> None:
        self._bytes -= _bytes(self._by_key.pop(key))

    def is_evicted(self, key: CollectiveKey) -> bool:
        """True if there was a result that has been evicted."""
        return key not in self._by_key and key[1] <= self._last.get(key[0], -1)

    def items(self) -> list[tuple[CollectiveKey, Gathered]]:
        return list(self._by_key.items())


@dataclass
class _AllGather:
    contributed: dict[int, list[Tensor]] = field(default_factory=dict)
    waiting: list[tuple[OnGathered, Request | None]] = field(default_factory=list)
    is_completing: bool = False
    """A thread completes it; members that join now get the same result."""


class AllGathers:
    """Pending and completed all-gathers."""

    def __init__(
        self,
        expected: Callable[[CollectiveKey], Iterable[int]],
        on_complete: Callable[[CollectiveKey, Gathered], None] | None = None,
    ) -> None:
        """`expected(key)`: the members to wait for. `on_complete` gets a result before any member does."""
        self._expected, self._on_complete = expected, on_complete
        self._open: dict[CollectiveKey, _AllGather] = {}
        self._done = GatherResults()
        self._lock = threading.Lock()

    def join(
        self,
        key: CollectiveKey,
        member: int,
        tensors: list[Tensor],
        on_gathered: OnGathered,
        request: Request | None = None,
    ) -> None:
        """Join, and call `on_gathered` with the tensors of all members when all have joined; at once if that is done.

        `request` gets progress messages while it waits.
        """
        with self._lock:
            result = self._done.get(key)
            if result is None:
                self._check_evicted(key)
                gather = self._open.setdefault(key, _AllGather())
                gather.contributed[member] = tensors
                gather.waiting.append((on_gathered, request))
        if result is not None:
            on_gathered(result)
        self.check()

    def _check_evicted(self, key: CollectiveKey) -> None:
        if self._done.is_evicted(key):
            raise ConfigError(
                f"all-gather {key[0]!r}, number {key[1]}, completed so long ago that its result is no longer stored; "
                "end the job, and restart it from a saved model"
            )

    def result(self, key: CollectiveKey) -> Gathered | None:
        """The result of a completed all-gather; None if it is pending or unknown."""
        with self._lock:
            self._check_evicted(key)
            return self._done.get(key)

    def is_started(self, key: CollectiveKey) -> bool:
        """True if a member has joined."""
        with self._lock:
            return key in self._open or self._done.get(key) is not None

    def check(self) -> None:
        """Complete the all-gathers that all expected members have joined."""
        with self._lock:
            full = [
                key
                for key, gather in self._open.items()
                if not gather.is_completing and not set(self._expected(key)) - gather.contributed.keys()
            ]
            results = {key: [t for _, t in sorted(self._open[key].contributed.items())] for key in full}
        for key, result in results.items():
            self.complete(key, result)

    def complete(self, key: CollectiveKey, result: Gathered) -> None:
        """Complete an all-gather with this result; no effect if another thread does or has done so."""
        with self._lock:
            gather = self._open.get(key)
            if gather is None or gather.is_completing:
                return
            gather.is_completing = True
        try:
            if self._on_complete is not None:
                self._on_complete(key, result)
        except BaseException:
            with self._lock:
                gather.is_completing = False
            raise
        with self._lock:
            del self._open[key]
            self._done.add(key, result)
        for on_gathered, _ in gather.waiting:
            on_gathered(result)

    def restore(self, results: GatherResults) -> None:
        """Load the results that the previous process has logged."""
        for key, result in results.items():
            self._done.add(key, result)

    def missing(self, key: CollectiveKey) -> list[int]:
        """The members that have not joined yet."""
        gather = self._open.get(key, _AllGather())
        return sorted(set(self._expected(key)) - gather.contributed.keys())

    def waiting(self) -> list[tuple[CollectiveKey, Request]]:
        """The waiting requests."""
        with self._lock:
            return [
                (key, request)
                for key, gather in self._open.items()
                for _, request in gather.waiting
                if request is not None and not request.is_replied
            ]


def describe_result(key: CollectiveKey, result: Gathered) -> dict[str, Any]:
    """The metadata of a logged result; its tensors follow it."""
    return {"name": key[0], "number": key[1], "counts": [len(tensors) for tensors in result]}


def decode_result(described: dict[str, Any], tensors: Iterator[Tensor]) -> tuple[CollectiveKey, Gathered]:
    """The result that `describe_result` describes, with the next tensors."""
    result = [[next(tensors) for _ in range(count)] for count in described["counts"]]
    return (described["name"], described["number"]), result


def _bytes(result: Gathered) -> int:
    return sum(tensor.nbytes for tensors in result for tensor in tensors)


Mailbox = tuple[int, int]
"""The number of the all-to-all, and the receiver."""


class TrainerCollectives:
    """The all-gathers and mailboxes of one server. They do not wait for trainers that were dropped."""

    def __init__(
        self, membership: Membership, on_complete: Callable[[CollectiveKey, Gathered], None]
    ) -> None:
        """`on_complete` logs the result of an all-gather before any trainer gets it."""
        self._membership = membership
        self._all_gathers = AllGathers(lambda key: membership.live, on_complete)
        self._lock = threading.Lock()
        self._mailboxes: dict[Mailbox, dict[int, Request]] = defaultdict(dict)
        self._receivers: dict[Mailbox, Request] = {}
        self.is_signalled = False
        """True once this server was asked to let the trainers save and stop."""
        self._received: dict[int, int] = {}
        """For each trainer, the last all-to-all that it has received."""

    def handlers(self) -> dict[str, Handler]:
        return {
            "all_gather": Handler("get", self._all_gather),
            "all_gather_result": Handler("get", self._all_gather_result),
            "preemption_requested": Handler("get", self._preemption_requested, repeatable=True),
            "send": Handler("get", self._send),
            "recv": Handler("get", self._recv),
        }

    def restore(self, results: GatherResults) -> None:
        """Load the logged results: trainers may lack their replies, and restarted trainers repeat all collectives."""
        self._all_gathers.restore(results)

    def check(self) -> None:
        """After a trainer was dropped: complete the collectives that waited only for it."""
        self._all_gathers.check()
        self._deliver()

    def requests(self) -> list[Request]:
        """All waiting requests."""
        sends = [request for mailbox in list(self._mailboxes.values()) for request in list(mailbox.values())]
        return [*(request for _, request in self._all_gathers.waiting()), *sends, *self._receivers.values()]

    def report_progress(self) -> None:
        """Report to the waiting trainers for whom they wait."""
        for key, request in self._all_gathers.waiting():
            request.progress(f"{key[0]}: waits for {named(self._all_gathers.missing(key))}")
        with self._lock:
            for mailbox, sends in self._mailboxes.items():
                receiver = self._receivers.get(mailbox)
                late = sorted(self._membership.live - sends.keys())
                for request in [*sends.values(), *([receiver] if receiver else [])]:
                    request.progress(f"all-to-all {mailbox[0]}: waits for {named(late or [mailbox[1]])}")

    def _all_gather(self, request: Request) -> None:
        message = read(messages.AllGather, request.meta)
        key = (message.name, message.number)
        reply: OnGathered = lambda result: _reply(request, result)  # noqa: E731
        self._all_gathers.join(key, request.trainer, request.tensors, reply, request)

    def _all_gather_result(self, request: Request) -> None:
        message = read(messages.AllGatherResult, request.meta)
        result = self._all_gathers.result((message.name, message.number))
        if result is None:
            request.reply({"counts": None})
        else:
            _reply(request, result)

    def _preemption_requested(self, request: Request) -> None:
        read(messages.PreemptionRequested, request.meta)
        is_requested = self.is_signalled or self._all_gathers.is_started((messages.PREEMPTION, 0))
        request.reply({"is_requested": is_requested})

    def _send(self, request: Request) -> None:
        message = read(messages.Send, request.meta)
        with self._lock:
            is_received = message.number <= self._received.get(message.to, -1)
            if not is_received:
                self._mailboxes[message.number, message.to][request.trainer] = request
        if is_received:
            request.reply()
        self._deliver()

    def _recv(self, request: Request) -> None:
        message = read(messages.Recv, request.meta)
        with self._lock:
            if message.number <= self._received.get(request.trainer, -1):
                raise ConfigError(
                    f"all-to-all {message.number} has completed: a previous incarnation of trainer {request.trainer} "
                    "has received its data; restart the whole job, or use local_shuffle where workers may be restarted"
                )
            self._receivers[message.number, request.trainer] = request
        self._deliver()

    def _deliver(self) -> None:
        with self._lock:
            full = [key for key in self._receivers if self._membership.live <= self._mailboxes[key].keys()]
            ready: list[tuple[Request, list[Tensor]]] = []
            for number, receiver in full:
                sends = self._mailboxes.pop((number, receiver))
                pieces = [send.tensors[0] for _, send in sorted(sends.items())]
                ready.append((self._receivers.pop((number, receiver)), pieces))
                self._received[receiver] = number
        for request, pieces in ready:
            request.reply({}, pieces)


def _reply(request: Request, result: Gathered) -> None:
    counts = [len(tensors) for tensors in result]
    request.reply({"counts": counts}, [tensor for tensors in result for tensor in tensors])


_NORMS_PER_STEP = 1000
"""More than the norms of one step: a program has fewer optimizers."""
_CACHED_NORMS = 16
_QUERY_S = 1.0
_POLL_S = 0.05


class Norms:
    """The global norms, as one server computes them."""

    def __init__(
        self, plan: JobPlan, number: int, settings: RpcSettings, is_stopped: Callable[[], bool]
    ) -> None:
        self.of_step: list[Tensor] = []
        """The sums of the current step, in order."""
        self._plan, self._number, self._settings, self._is_stopped = plan, number, settings, is_stopped
        self._step = 0
        self._given: list[Tensor] = []
        self.known: dict[int, Tensor] = {}
        """The last sums, by sequence number."""
        self._all_gathers = AllGathers(lambda key: plan.norms[int(key[0])])
        self._client: Client | None = None

    def handlers(self) -> dict[str, Handler]:
        return {
            "reduce_norm": Handler("io", self._reduce_norm),
            "query_norm": Handler("io", self._query_norm),
        }

    def begin(self, step: int, given: Sequence[Tensor] = ()) -> None:
        """Start a step; `given`: its sums, if the step is replayed from the log."""
        self._step, self.of_step, self._given = step, [], list(given)

    def total(self, part: Tensor, group: int) -> Tensor:
        """The sum over the servers' parts of the norm of one optimizer in this step."""
        number = self._step * _NORMS_PER_STEP + group
        if self._given:
            total = self._given.pop(0)
        elif number in self.known:
            total = self.known[number]
        else:
            total = (
                self._reduce_here(number, group, part)
                if self._number == 0
                else self._reduce_remote(number, group, part)
            )
        self.of_step.append(total)
        self._cache(number, total)
        return total.clone()

    def report_progress(self) -> None:
        """Report to the waiting servers for which servers they wait."""
        for key, request in self._all_gathers.waiting():
            request.progress(f"a norm waits for {named(self._all_gathers.missing(key), 'servers')}")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _cache(self, number: int, total: Tensor) -> None:
        self.known[number] = total
        while len(self.known) > _CACHED_NORMS:
            del self.known[next(iter(self.known))]

    def _reduce_remote(self, number: int, group: int, part: Tensor) -> Tensor:
        """On the other servers: the sum, from server 0."""
        meta = messages.meta(messages.ReduceNorm(number, group, self._number))
        client = self._others(self._plan.endpoints[:1])
        return (
            client.call(0, "reduce_norm", meta, [part], what="the norm of all gradients").tensors[0].clone()
        )

    def _reduce_here(self, number: int, group: int, part: Tensor) -> Tensor:
        """On server 0: the sum of all parts, or the one that another server has from this server's last incarnation."""
        arrived = threading.Event()
        totals: list[Tensor] = []

        def on_gathered(result: Gathered) -> None:
            totals.append(_sum(result))
            arrived.set()

        self._all_gathers.join((str(group), number), 0, [part], on_gathered)
        queries: list[PendingReply] = []
        while not arrived.wait(_POLL_S if queries else _QUERY_S):
            if self._is_stopped():
                raise ProgramError("the server was stopped while it waited for the other servers")
            queries = queries or self._query_others(number)
            for query in [query for query in queries if query.is_done()]:
                queries.remove(query)
                if known := query.wait(f"query of norm {number}").tensors:
                    self._all_gathers.complete((str(group), number), [[known[0].clone()]])
        for query in queries:
            query.cancel()
        return totals[0]

    def _query_others(self, number: int) -> list[PendingReply]:
        """Query all servers at once: one of them may be down for long."""
        client = self._others(self._plan.endpoints[1:])
        meta = messages.meta(messages.QueryNorm(number))
        return [client.start(server, "query_norm", meta) for server in range(len(self._plan.endpoints) - 1)]

    def _others(self, endpoints: Sequence[str]) -> Client:
        if self._client is None:
            self._client = Client(endpoints, f"server {self._number}", -1, self._settings)
        return self._client

    def _reduce_norm(self, request: Request) -> None:
        message = read(messages.ReduceNorm, request.meta)
        if message.number in self.known:
            request.reply({}, [self.known[message.number]])
            return
        key = (str(message.group), message.number)
        reply: OnGathered = lambda result: request.reply({}, [_sum(result)])  # noqa: E731
        self._all_gathers.join(key, message.member, request.tensors, reply, request)

    def _query_norm(self, request: Request) -> None:
        number = read(messages.QueryNorm, request.meta).number
        request.reply({}, [self.known[number]] if number in self.known else [])


def _sum(contributed: Gathered) -> Tensor:
    total = contributed[0][0].clone()
    for (part,) in contributed[1:]:
        total += part
    return total
