"""Global norms of gradients that are sharded over several servers: server 0 reduces the servers' parts, in order.

    server 1 ──reduce_norm(part)──▶ server 0 ──▶ sum, the same bits for all
    server 2 ──reduce_norm(part)──▶

The last sums are cached, and logged with their step: a server that is killed and repeats the step queries the other
servers for the sum that they have already used.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Sequence

from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ps import messages
from argosy.engine.ps.job_plan import JobPlan
from argosy.engine.ps.messages import read
from argosy.engine.ps.rpc.client import Client, PendingReply
from argosy.engine.ps.rpc.server import Handler, Request
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.server.all_gathers import AllGathers, Gathered, OnGathered
from argosy.engine.ps.server.membership import named

_GROUPS = 1000
"""More than the norms of one step: a program has fewer optimizers."""
_CACHED = 16
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
        number = self._step * _GROUPS + group
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
        while len(self.known) > _CACHED:
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
                if known := query.wait("a norm that it may know").tensors:
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
