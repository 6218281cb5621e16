"""Trainers that meet on a server: each brings tensors and gets those of all, or posts bytes to another."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict

from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.server.meetings import Key, Meetings
from argosy.engine.ps.server.members import Members, named

Box = tuple[str, int]
"""Name, and whose it is."""


class Gatherings:
    """The meetings and boxes of one server. A trainer that is dropped is not waited for."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._meetings = Meetings(lambda key: members.live)
        self._waiting: list[tuple[Key, Request]] = []
        self._lock = threading.Lock()
        self._boxes: dict[Box, dict[int, Tensor]] = defaultdict(dict)
        self._takers: dict[Box, Request] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "meet": Handler("get", self._meet),
            "post": Handler("get", self._post),
            "take": Handler("get", self._take),
        }

    def check(self) -> None:
        """Somebody was dropped: end what waits for nobody any more."""
        self._meetings.check()
        self._deliver()

    def requests(self) -> list[Request]:
        """Of all who wait."""
        with self._lock:
            self._waiting = [(key, request) for key, request in self._waiting if not request.is_answered]
            return [*(request for _, request in self._waiting), *self._takers.values()]

    def tell(self) -> None:
        """Say to those who wait for whom."""
        self.requests()
        with self._lock:
            for key, request in self._waiting:
                request.tell(f"{key[0]}: waits for {named(self._meetings.missing(key))}")
            for box, request in self._takers.items():
                late = sorted(self._members.live - self._boxes[box].keys())
                request.tell(f"{box[0]}: waits for {named(late)}")

    def _meet(self, request: Request) -> None:
        message = read(messages.Meet, request.meta)

        def found(result: list[list[Tensor]]) -> None:
            counts = [len(tensors) for tensors in result]
            request.answer({"counts": counts}, [tensor for tensors in result for tensor in tensors])

        key = (message.name, message.number)
        with self._lock:
            self._waiting.append((key, request))
        self._meetings.join(key, request.trainer, request.tensors, found)

    def _post(self, request: Request) -> None:
        message = read(messages.Post, request.meta)
        with self._lock:
            self._boxes[message.box, message.to][request.trainer] = request.tensors[0]
        request.answer()
        self._deliver()

    def _take(self, request: Request) -> None:
        message = read(messages.Take, request.meta)
        with self._lock:
            self._takers[message.box, request.trainer] = request
        self._deliver()

    def _deliver(self) -> None:
        with self._lock:
            full = [box for box in self._takers if self._members.live <= self._boxes[box].keys()]
            ready = [(self._takers.pop(box), self._boxes.pop(box)) for box in full]
        for request, pieces in ready:
            request.answer({}, [piece for _, piece in sorted(pieces.items())])
