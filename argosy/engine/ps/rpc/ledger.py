"""Who has asked a server what, what was answered, and who has not been heard for long.

A request is known by (client, id). Its entry stays until the client's `settled` passes it: from then on the client
has the answer and will not ask again. Not safe for threads: the listener's lock guards it.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field

from argosy.engine.ps.rpc.wire import Frames, Header


@dataclass(slots=True)
class Entry:
    """One request: where its answer goes to, and the answer."""

    id: int
    route: bytes
    """The connection that asked last: an older one may be gone."""
    is_done: bool = False
    answer: Frames | None = None

    @property
    def may_run_again(self) -> bool:
        """It was answered, and the answer was not kept."""
        return self.is_done and self.answer is None


@dataclass(slots=True)
class Peer:
    """One life of a client."""

    heard: float
    settled: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    def settle(self, settled: int) -> None:
        """Forget the answers that have arrived."""
        if settled > self.settled:
            self.settled = settled
            # Ids come almost in order; one that came out of order goes when it is the first.
            while self.entries and (first := next(iter(self.entries))) < settled:
                del self.entries[first]


class Ledger:
    """All clients of one server."""

    def __init__(self) -> None:
        self.peers: dict[str, Peer] = {}
        self.trainers: dict[int, float] = {}
        """When each trainer was heard last."""
        self._silent: set[int] = set()

    def hear(self, header: Header, now: float) -> Peer:
        """Note that a client has spoken."""
        peer = self.peers.get(header.client)
        if peer is None:
            peer = self.peers[header.client] = Peer(now)
        peer.heard = now
        peer.settle(header.settled)
        if header.trainer >= 0:
            self.trainers[header.trainer] = now
            self._silent.discard(header.trainer)
        return peer

    def excuse(self, late_s: float) -> None:
        """The server itself has stood still for so long: nobody could be heard."""
        for peer in self.peers.values():
            peer.heard += late_s
        for trainer in self.trainers:
            self.trainers[trainer] += late_s

    def fallen_silent(self, now: float, silent_s: float) -> list[int]:
        """The trainers that have not been heard for so long, each one once."""
        found = {t for t, heard in self.trainers.items() if now - heard > silent_s} - self._silent
        self._silent |= found
        return sorted(found)

    def forget(self, now: float, silent_s: float) -> None:
        """Forget the clients that have not been heard for so long."""
        for life in [life for life, peer in self.peers.items() if now - peer.heard > silent_s]:
            del self.peers[life]
