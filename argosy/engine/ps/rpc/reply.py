"""What a client knows of one of its requests."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from argosy.engine.errors import RpcError
from argosy.engine.ps.rpc.wire import Frames


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    meta: dict[str, Any]
    tensors: list[Tensor]
    """Writable, and nobody else's."""


class Waiter(Protocol):
    """What a reply needs of its client."""

    def wait_for(self, reply: "Reply", what: str) -> None:
        """Return once the reply is done."""

    def look_for(self, reply: "Reply") -> None:
        """Take what has arrived."""

    def forget(self, reply: "Reply") -> None:
        """Send it to nobody any more."""


class Reply:
    """The answer to one request, or what became of it."""

    def __init__(self, client: Waiter, server: int, kind: str, id_: int, frames: Frames, now: float) -> None:
        self.client, self.server, self.kind, self.id, self.frames = client, server, kind, id_, frames
        self.what = kind
        self.started = self.heard = now
        """`heard`: when the server last said something about this request."""
        self.told = ""
        """What it said."""
        self.is_sent = False
        self.due: Literal["", "send", "ask"] = "send"
        """What is to be done as soon as there is a connection: send it, or ask what became of it."""
        self.asked, self.ask_at = 0, now
        self.answer: Answer | None = None
        self.error: RpcError | None = None

    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        if not self.is_over:
            self.client.look_for(self)
        return self.is_over

    def wait(self, what: str = "") -> Answer:
        """The answer; `what` says in messages what is waited for: "push of w.block0"."""
        if not self.is_over:
            self.client.wait_for(self, what or self.kind)
        if self.error is not None:
            raise self.error
        assert self.answer is not None, f"{self.kind} {self.id} is over without an answer"
        return self.answer

    def forget(self) -> None:
        """The answer is not wanted any more; a server that is started anew is not asked again."""
        if not self.is_over:
            self.client.forget(self)

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.error is not None

    def end(self, result: Answer | RpcError) -> None:
        """Set what became of it; the memory of what was sent is the caller's again."""
        if isinstance(result, Answer):
            self.answer = result
        else:
            self.error = result
        self.frames = []
