"""A trainer's connection to the servers: who it is, which step it does, and what it has sent and not heard of yet."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.client import Client, Reply
from argosy.engine.ps.rpc.settings import Settings

T = TypeVar("T")
Tensors = Sequence[Tensor]


class PerThread(Generic[T]):
    """A value of which every thread has its own: threads of train_from_dataset do steps beside each other."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._local = make, threading.local()

    @property
    def mine(self) -> T:
        if not hasattr(self._local, "value"):
            self._local.value = self._make()
        return self._local.value  # type: ignore[no-any-return]


@dataclass
class Sent:
    """What one thread has sent."""

    replies: list[tuple[str, Reply]] = field(default_factory=list)
    """Pushes and barriers that are not answered yet, and what they are."""
    pushes: Counter[int] = field(default_factory=Counter)
    """How many messages each server gets in this step before the barrier."""
    steps: int = 0
    told: int = 0
    """How many of the steps the servers know of."""


class Connection:
    """One trainer among the servers of one job."""

    def __init__(self, plan: Plan, number: int, settings: Settings) -> None:
        self.plan, self.number = plan, number
        self.servers = range(len(plan.endpoints))
        self.global_step = 0
        """async: how many steps all trainers have done, as far as the servers have told."""
        self._sent = PerThread(Sent)
        self.client = Client(plan.endpoints, f"trainer {number}", number, settings)
        try:
            self.greet()
        except BaseException:
            self.client.close()
            raise

    @property
    def sent(self) -> Sent:
        return self._sent.mine

    @property
    def sends_now(self) -> bool:
        """async: gradients of some steps are added up before they are sent; True in the last of them."""
        return (self.sent.steps + 1) % self.plan.merged_steps == 0

    def greet(self) -> None:
        """Say hello to all; they tell which step this trainer does next."""
        found = [read(messages.Welcome, met) for met in self.all(messages.hello(self.plan), "the first word")]
        self.next_step = min(welcome.next_step for welcome in found)
        self.is_initialised = all(welcome.is_initialised for welcome in found)

    def all(self, message: messages.Message, what: str) -> list[dict[str, Any]]:
        """Tell every server the same; returns their answers in order."""
        replies = [self.start(server, message) for server in self.servers]
        return [reply.wait(what).meta for reply in replies]

    def start(self, server: int, message: messages.Message, tensors: Tensors = ()) -> Reply:
        return self.client.start(server, messages.kind(type(message)), messages.meta(message), tensors)

    def push(self, server: int, message: messages.Message, tensors: Tensors, what: str) -> None:
        """Send a part of this step; `settle` waits for the answer."""
        self.sent.pushes[server] += 1
        self.sent.replies.append((what, self.start(server, message, tensors)))

    def forget_sent(self) -> None:
        """What this thread has sent of a step that it has broken off counts for nothing."""
        for _, reply in self.sent.replies:
            reply.forget()
        self.sent.replies, self.sent.pushes = [], Counter()

    def settle(self) -> None:
        """Return when all that this thread has sent is answered."""
        replies, self.sent.replies = self.sent.replies, []
        for what, reply in replies:
            meta = reply.wait(what).meta
            self.global_step = max(self.global_step, int(meta.get("steps", 0)))
