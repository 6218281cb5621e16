"""A request as a server's handler sees it, and what a handler is."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.dedup import Entry
from argosy.engine.ps.rpc.wire import Frames, WireMessage


class Responder(Protocol):
    """The server, as a request uses it."""

    def frames(
        self, kind: str, to: "Request", meta: dict[str, Any], tensors: Sequence[Tensor] = ()
    ) -> Frames:
        """Encode a message about this request."""

    def finish(
        self, entry: Entry, frames: Frames, *, keep: bool, rejected: bool = False, if_pending: bool = False
    ) -> bool:
        """Send the reply to a request; `keep` stores it for a client that does not receive it.

        A second reply raises; with `if_pending` it is not sent, and the result is False.
        """

    def send_progress(self, entry: Entry, frames: Frames) -> None:
        """Send a progress message about a pending request."""


class Request:
    """One request of a client. Its handler replies to it or rejects it once, now or later, from any thread."""

    __slots__ = (
        "_entry",
        "_repeatable",
        "_server",
        "acked_below",
        "client",
        "id",
        "is_repeated",
        "kind",
        "meta",
        "tensors",
        "trainer",
        "who",
    )

    def __init__(
        self,
        server: Responder,
        message: WireMessage,
        entry: Entry,
        repeatable: bool,
        is_repeated: bool = False,
    ) -> None:
        """`is_repeated`: it was replied to before, and the reply was lost."""
        header = message.header
        self.client, self.who, self.trainer = header.client, header.who, header.trainer
        self.id, self.kind, self.meta, self.tensors = header.id, header.kind, header.meta, message.tensors
        self.acked_below = header.acked_below
        """The client has the replies to all its requests below this number."""
        self.is_repeated = is_repeated
        self._server, self._entry, self._repeatable = server, entry, repeatable

    def reply(self, meta: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()) -> None:
        """Send the reply. The tensors are read while they are sent, and stored in case the reply is lost:

        they must not change afterwards, unless the handler is repeatable and its clients may see the change.
        """
        try:
            frames = self._server.frames("reply", self, dict(meta or {}), tensors)
        except ConfigError as e:
            self.reject(str(e))
            raise
        self._server.finish(self._entry, frames, keep=not self._repeatable)

    def reject(self, message: str) -> None:
        """Send an error instead of a reply."""
        frames = self._server.frames("reject", self, {"text": message[:100_000]})
        self._server.finish(self._entry, frames, keep=not self._repeatable, rejected=True)

    def reject_if_pending(self, message: str) -> bool:
        """Send an error, unless another thread has replied; False if it has."""
        frames = self._server.frames("reject", self, {"text": message[:100_000]})
        keep = not self._repeatable
        return self._server.finish(self._entry, frames, keep=keep, rejected=True, if_pending=True)

    def progress(self, text: str) -> None:
        """Report why the reply is late, which resets the client's deadline. No effect after the reply."""
        self._server.send_progress(self._entry, self._server.frames("progress", self, {"text": text}))

    @property
    def is_replied(self) -> bool:
        return self._entry.is_done


PoolName: TypeAlias = Literal["send", "get", "prefetch", "io"]


@dataclass(frozen=True)
class Handler:
    """How a server executes one kind of request."""

    pool: PoolName
    """The thread pool that runs it; io: the server's I/O thread, for handlers that never block."""
    function: Callable[[Request], None]
    """Replies to the request or defers it; an exception rejects the request."""
    repeatable: bool = False
    """Its replies are not stored: if one is lost, the function runs again."""
