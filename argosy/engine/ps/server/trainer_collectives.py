"""Collectives of the trainers, on a server: all-gather of tensors, and all-to-all of bytes.

send to 1 ─┐                                           a send gets no reply: after a restart of the server the client
send to 1 ─┼─▶ mailbox of trainer 1, full ─▶ recv      sends it again; the sender cancels it after the barrier that
send to 1 ─┘                                           follows the all-to-all, when all have received their data
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.rpc.server import Handler, Request
from argosy.engine.ps.server.all_gathers import AllGathers, Gathered, OnGathered
from argosy.engine.ps.server.membership import Membership, named
from argosy.engine.ps.server.state import ServerState

Mailbox = tuple[int, int]
"""The number of the all-to-all, and the receiver."""


class TrainerCollectives:
    """The all-gathers and mailboxes of one server. They do not wait for trainers that were dropped."""

    def __init__(self, membership: Membership, state: ServerState) -> None:
        self._membership, self._state = membership, state
        self._all_gathers = AllGathers(lambda key: membership.live, state.record_all_gather)
        self._lock = threading.Lock()
        self._mailboxes: dict[Mailbox, dict[int, Request]] = defaultdict(dict)
        self._receivers: dict[Mailbox, Request] = {}
        self._received: dict[int, int] = {}
        """For each trainer, the last all-to-all that it has received."""

    def handlers(self) -> dict[str, Handler]:
        return {
            "all_gather": Handler("get", self._all_gather),
            "all_gather_result": Handler("get", self._all_gather_result),
            "send": Handler("get", self._send),
            "recv": Handler("get", self._recv),
        }

    def restore(self) -> None:
        """Load the logged results: trainers may lack their replies, and restarted trainers repeat all collectives."""
        self._all_gathers.restore(self._state.results)

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
