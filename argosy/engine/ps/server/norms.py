"""Norms of gradients that lie on several servers: each brings its part, server 0 adds them up in order.

    server 1 ──total(part)──▶ server 0 ──▶ sum, the same bits for all
    server 2 ──total(part)──▶

Sums are remembered for a while, and journaled with their step: a server that is killed and does the step again asks
for what the others have already.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Sequence

from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.server.meetings import Found, Meetings, Result
from argosy.engine.ps.server.members import named

_GROUPS = 1000
"""Norms of one step: more than a program has optimizers."""
_REMEMBERED = 16
_ASK_S = 1.0


class Norms:
    """The sums of one server."""

    def __init__(self, plan: Plan, number: int, settings: Settings, is_stopped: Callable[[], bool]) -> None:
        self.of_step: list[Tensor] = []
        """Those of the step under way, in order."""
        self._plan, self._number, self._settings, self._is_stopped = plan, number, settings, is_stopped
        self._step = 0
        self._given: list[Tensor] = []
        self.known: dict[int, Tensor] = {}
        """The last ones, by number."""
        self._meetings = Meetings(lambda key: plan.norms[int(key[0])])
        self._client: Client | None = None

    def handlers(self) -> dict[str, Handler]:
        return {"total": Handler("io", self._total_for), "known_total": Handler("io", self._known_total)}

    def begin(self, step: int, given: Sequence[Tensor] = ()) -> None:
        """A step is about to be done; `given`: its sums, if it was done before."""
        self._step, self.of_step, self._given = step, [], list(given)

    def total(self, part: Tensor, group: int) -> Tensor:
        """The sum of what the servers bring for the norm of one optimizer in this step."""
        number = self._step * _GROUPS + group
        if self._given:
            found = self._given.pop(0)
        elif number in self.known:
            found = self.known[number]
        else:
            found = (
                self._gathered(number, group, part) if self._number == 0 else self._asked(number, group, part)
            )
        self.of_step.append(found)
        self._remember(number, found)
        return found.clone()

    def tell(self) -> None:
        """Say to servers that wait for which."""
        for key, request in self._meetings.waiting():
            request.tell(f"a norm waits for {named(self._meetings.missing(key), 'servers')}")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _remember(self, number: int, total: Tensor) -> None:
        self.known[number] = total
        while len(self.known) > _REMEMBERED:
            del self.known[next(iter(self.known))]

    def _asked(self, number: int, group: int, part: Tensor) -> Tensor:
        """On the other servers: from server 0."""
        meta = messages.meta(messages.Total(number, group, self._number))
        client = self._others(self._plan.endpoints[:1])
        return client.call(0, "total", meta, [part], what="the norm of all gradients").tensors[0].clone()

    def _gathered(self, number: int, group: int, part: Tensor) -> Tensor:
        """On server 0: when all have brought theirs, or from one that has it from a former life of this server."""
        arrived = threading.Event()
        found: list[Tensor] = []

        def note(result: Result) -> None:
            found.append(_sum(result))
            arrived.set()

        self._meetings.join((str(group), number), 0, [part], note)
        while not arrived.wait(_ASK_S):
            if self._is_stopped():
                raise ProgramError("the server ends while it waits for the other servers")
            if (known := self._of_others(number)) is not None:
                self._meetings.end((str(group), number), [[known]])
        return found[0]

    def _of_others(self, number: int) -> Tensor | None:
        client = self._others(self._plan.endpoints[1:])
        meta = messages.meta(messages.KnownTotal(number))
        for server in range(len(self._plan.endpoints) - 1):
            if found := client.call(server, "known_total", meta, what="a norm that it may know").tensors:
                return found[0].clone()
        return None

    def _others(self, endpoints: Sequence[str]) -> Client:
        if self._client is None:
            self._client = Client(endpoints, f"server {self._number}", -1, self._settings)
        return self._client

    def _total_for(self, request: Request) -> None:
        message = read(messages.Total, request.meta)
        if message.number in self.known:
            request.answer({}, [self.known[message.number]])
            return
        key = (str(message.group), message.number)
        answer: Found = lambda result: request.answer({}, [_sum(result)])  # noqa: E731
        self._meetings.join(key, message.member, request.tensors, answer, request)

    def _known_total(self, request: Request) -> None:
        number = read(messages.KnownTotal, request.meta).number
        request.answer({}, [self.known[number]] if number in self.known else [])


def _sum(brought: Result) -> Tensor:
    total = brought[0][0].clone()
    for (part,) in brought[1:]:
        total += part
    return total
