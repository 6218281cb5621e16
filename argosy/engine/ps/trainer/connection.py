"""A trainer's connection to the servers: its number, its next step, and its requests in flight."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

from argosy.engine.metrics import counters
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import read
from argosy.engine.ps.rpc.client import Client, PendingReply
from argosy.engine.ps.rpc.sockets import RpcSettings

T = TypeVar("T")
Tensors = Sequence[Tensor]


class PerThread(Generic[T]):
    """A thread-local value: threads of train_from_dataset do steps concurrently."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._local = make, threading.local()

    @property
    def value(self) -> T:
        if not hasattr(self._local, "value"):
            self._local.value = self._make()
        return self._local.value  # type: ignore[no-any-return]


@dataclass
class InFlight:
    """The requests that one thread has in flight."""

    pending: list[tuple[str, PendingReply]] = field(default_factory=list)
    """Pushes and barriers that are not acknowledged yet, with their descriptions."""
    pushes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By server, the sequence numbers of the pushes of this step."""
    steps: int = 0
    steps_reported: int = 0
    """How many of the steps were reported to the servers."""


class TrainerConnection:
    """One trainer among the servers of one job."""

    def __init__(self, plan: JobPlan, number: int, settings: RpcSettings) -> None:
        self.plan, self.number = plan, number
        self.servers = range(len(plan.endpoints))
        self.global_step = 0
        """async: how many steps all trainers have done, as far as the servers have reported."""
        self._in_flight = PerThread(InFlight)
        self.client = Client(plan.endpoints, f"trainer {number}", number, settings)
        try:
            self.hello()
        except BaseException:
            self.client.close()
            raise

    @property
    def in_flight(self) -> InFlight:
        return self._in_flight.value

    @property
    def sends_now(self) -> bool:
        """async: gradients of `merged_steps` steps are summed before they are sent; True in the last of them."""
        return (self.in_flight.steps + 1) % self.plan.merged_steps == 0

    def hello(self) -> None:
        """Register at all servers; their replies say which step this trainer does next."""
        replies = [read(messages.HelloReply, meta) for meta in self.all(messages.hello(self.plan), "hello")]
        self.next_step = min(reply.next_step for reply in replies)
        self.is_initialised = all(reply.is_initialised for reply in replies)

    def all(self, message: messages.Message, what: str) -> list[dict[str, Any]]:
        """Send a request to every server; returns the metadata of their replies in order."""
        pending = [self.start(server, message) for server in self.servers]
        return [reply.wait(what).meta for reply in pending]

    def start(self, server: int, message: messages.Message, tensors: Tensors = ()) -> PendingReply:
        counters.sent_bytes += sum(tensor.nbytes for tensor in tensors)
        return self.client.start(server, messages.kind(type(message)), messages.meta(message), tensors)

    def push(self, server: int, message: messages.Message, tensors: Tensors, what: str) -> None:
        """Send a part of this step; `wait_acked` waits for the reply."""
        reply = self.start(server, message, tensors)
        self.in_flight.pushes[server].append(reply.id)
        self.in_flight.pending.append((what, reply))

    def discard_sent(self) -> None:
        """Cancel the requests of a step that was interrupted."""
        for _, reply in self.in_flight.pending:
            reply.cancel()
        self.in_flight.pending = []
        self.in_flight.pushes.clear()

    def wait_acked(self) -> None:
        """Return when all requests of this thread are acknowledged."""
        pending, self.in_flight.pending = self.in_flight.pending, []
        for what, reply in pending:
            meta = reply.wait(what).meta
            self.global_step = max(self.global_step, int(meta.get("steps", 0)))
