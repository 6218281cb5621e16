"""Trainers that meet on a server: each brings tensors and gets those of all, or posts bytes to each of the others.

post to 1 ─┐                                          posts are not answered: if the server dies, they are sent
post to 1 ─┼─▶ box of trainer 1, full ─▶ take         again to its successor; who posts takes them back when all
post to 1 ─┘                                          have met, with what is theirs
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.server.meetings import Meetings, Result
from argosy.engine.ps.server.members import Members, named
from argosy.engine.ps.server.state import State

Box = tuple[int, int]
"""The number of the exchange, and whose box it is."""


class Gatherings:
    """The meetings and boxes of one server. A trainer that is dropped is not waited for."""

    def __init__(self, members: Members, state: State) -> None:
        self._members, self._state = members, state
        self._meetings = Meetings(lambda key: members.live, state.record_met)
        self._lock = threading.Lock()
        self._boxes: dict[Box, dict[int, Request]] = defaultdict(dict)
        self._takers: dict[Box, Request] = {}
        self._taken: dict[int, int] = {}
        """Of each trainer the last exchange that it has taken its box of."""

    def handlers(self) -> dict[str, Handler]:
        return {
            "meet": Handler("get", self._meet),
            "post": Handler("get", self._post),
            "take": Handler("get", self._take),
        }

    def restore(self) -> None:
        """Some may not have got the result of the last meeting before the server was killed."""
        if self._state.met is not None:
            self._meetings.remember(*self._state.met)

    def check(self) -> None:
        """Somebody was dropped: end what waits for nobody any more."""
        self._meetings.check()
        self._deliver()

    def requests(self) -> list[Request]:
        """Of all who wait."""
        posts = [request for box in list(self._boxes.values()) for request in list(box.values())]
        return [*(request for _, request in self._meetings.waiting()), *posts, *self._takers.values()]

    def tell(self) -> None:
        """Say to those who wait for whom."""
        for key, request in self._meetings.waiting():
            request.tell(f"{key[0]}: waits for {named(self._meetings.missing(key))}")
        with self._lock:
            for box, posts in self._boxes.items():
                taker = self._takers.get(box)
                late = sorted(self._members.live - posts.keys())
                for request in [*posts.values(), *([taker] if taker else [])]:
                    request.tell(f"exchange {box[0]}: waits for {named(late or [box[1]])}")

    def _meet(self, request: Request) -> None:
        message = read(messages.Meet, request.meta)

        def found(result: Result) -> None:
            counts = [len(tensors) for tensors in result]
            request.answer({"counts": counts}, [tensor for tensors in result for tensor in tensors])

        self._meetings.join((message.name, message.number), request.trainer, request.tensors, found, request)

    def _post(self, request: Request) -> None:
        message = read(messages.Post, request.meta)
        with self._lock:
            is_over = message.number <= self._taken.get(message.to, -1)
            if not is_over:
                self._boxes[message.number, message.to][request.trainer] = request
        if is_over:
            request.answer()
        self._deliver()

    def _take(self, request: Request) -> None:
        message = read(messages.Take, request.meta)
        with self._lock:
            if message.number <= self._taken.get(request.trainer, -1):
                raise ConfigError(
                    f"exchange {message.number} is over, and a former life of trainer {request.trainer} has taken what "
                    "was for it; start the whole job anew, or use local_shuffle where workers may be started anew"
                )
            self._takers[message.number, request.trainer] = request
        self._deliver()

    def _deliver(self) -> None:
        with self._lock:
            full = [box for box in self._takers if self._members.live <= self._boxes[box].keys()]
            ready: list[tuple[Request, list[Tensor]]] = []
            for box in full:
                posts = self._boxes.pop(box)
                pieces = [post.tensors[0] for _, post in sorted(posts.items())]
                ready.append((self._takers.pop(box), pieces))
                self._taken[box[1]] = box[0]
        for request, pieces in ready:
            request.answer({}, pieces)
