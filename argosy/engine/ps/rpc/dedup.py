"""Deduplicates requests: the requests of each client, their replies, and when each client was last seen.

A request is identified by (client, id). Its entry stays until the client's `acked_below` passes it: the client then has
the reply and does not send the request again. Not thread-safe: the server's lock guards it.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field

from argosy.engine.ps.rpc.wire import Frames, Header


@dataclass(slots=True)
class Entry:
    """One request: the route of its reply, and the reply."""

    id: int
    route: bytes
    """The connection that sent it last: an older one may be closed."""
    is_done: bool = False
    reply: Frames | None = None

    @property
    def may_run_again(self) -> bool:
        """It was replied to, and the reply was not stored."""
        return self.is_done and self.reply is None


@dataclass(slots=True)
class Peer:
    """One incarnation of a client."""

    last_seen: float
    acked_below: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    def discard_acked(self, acked_below: int) -> None:
        """Remove the replies that the client has."""
        if acked_below > self.acked_below:
            self.acked_below = acked_below
            # Ids arrive almost in order; one that arrived out of order is removed when it is the first.
            while self.entries and (first := next(iter(self.entries))) < acked_below:
                del self.entries[first]


class DedupTable:
    """All clients of one server."""

    def __init__(self) -> None:
        self.peers: dict[str, Peer] = {}
        self.trainers: dict[int, float] = {}
        """When the last message of each trainer arrived."""
        self._unresponsive: set[int] = set()

    def note_message(self, header: Header, now: float) -> Peer:
        """Note a message of a client."""
        peer = self.peers.get(header.client)
        if peer is None:
            peer = self.peers[header.client] = Peer(now)
        peer.last_seen = now
        peer.discard_acked(header.acked_below)
        if header.trainer >= 0:
            self.trainers[header.trainer] = now
            self._unresponsive.discard(header.trainer)
        return peer

    def extend_deadlines(self, late_s: float) -> None:
        """The server itself was stopped for this long and could not receive: shift all times by it."""
        for peer in self.peers.values():
            peer.last_seen += late_s
        for trainer in self.trainers:
            self.trainers[trainer] += late_s

    def newly_unresponsive(self, now: float, timeout_s: float) -> list[int]:
        """The trainers whose last message is older than the timeout; each is returned once."""
        expired = {t for t, last_seen in self.trainers.items() if now - last_seen > timeout_s}
        new = expired - self._unresponsive
        self._unresponsive |= new
        return sorted(new)

    def evict(self, now: float, timeout_s: float) -> None:
        """Remove the clients whose last message is older than the timeout."""
        expired = [client for client, peer in self.peers.items() if now - peer.last_seen > timeout_s]
        for client in expired:
            del self.peers[client]
