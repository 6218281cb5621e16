"""A request as a server's handler sees it, and what a handler is."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.ledger import Entry
from argosy.engine.ps.rpc.wire import Frames, Message


class Mouth(Protocol):
    """What a request needs of its listener."""

    def frames(
        self, kind: str, to: "Request", meta: dict[str, Any], tensors: Sequence[Tensor] = ()
    ) -> Frames:
        """An answer to this request, ready to be sent."""

    def finish(self, entry: Entry, frames: Frames, *, keep: bool, refused: bool = False) -> None:
        """Send the one answer to a request, and keep it for a client that does not get it."""

    def tell(self, entry: Entry, frames: Frames) -> None:
        """Send word about a request that is not answered yet."""


class Request:
    """One request of a client; to be answered or refused once, now or later, from any thread."""

    __slots__ = (
        "_entry",
        "_listener",
        "_repeatable",
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
        self, listener: Mouth, message: Message, entry: Entry, repeatable: bool, is_repeated: bool = False
    ) -> None:
        """`is_repeated`: it was answered before, and the answer got lost."""
        header = message.header
        self.client, self.who, self.trainer = header.client, header.who, header.trainer
        self.id, self.kind, self.meta, self.tensors = header.id, header.kind, header.meta, message.tensors
        self.is_repeated = is_repeated
        self._listener, self._entry, self._repeatable = listener, entry, repeatable

    def answer(self, meta: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()) -> None:
        """Send the answer. The tensors are read while they are sent, and kept in case that the answer gets lost:

        they must not change afterwards, unless the handler is repeatable and whoever pulls may see the change.
        """
        try:
            frames = self._listener.frames("answer", self, dict(meta or {}), tensors)
        except ConfigError as e:
            self.refuse(str(e))
            raise
        self._listener.finish(self._entry, frames, keep=not self._repeatable)

    def refuse(self, message: str) -> None:
        """Send an error instead of an answer."""
        frames = self._listener.frames("refuse", self, {"text": message[:100_000]})
        self._listener.finish(self._entry, frames, keep=not self._repeatable, refused=True)

    def tell(self, text: str) -> None:
        """Say why the answer is late; the client's patience begins anew. Nothing if it has been answered."""
        self._listener.tell(self._entry, self._listener.frames("tell", self, {"text": text}))

    @property
    def is_answered(self) -> bool:
        return self._entry.is_done


PoolName: TypeAlias = Literal["send", "get", "prefetch", "io"]


@dataclass(frozen=True)
class Handler:
    """What a server does for one kind of request."""

    pool: PoolName
    """Whose threads run it; io: the thread that serves, for what is done at once."""
    function: Callable[[Request], None]
    """Answers the request or keeps it for later; what it raises is the refusal."""
    repeatable: bool = False
    """Its answers are not kept: if one gets lost, the function runs again."""
