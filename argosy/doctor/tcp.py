"""Measures one TCP link from both of its ends: latency, clock difference, bandwidth in each direction.

    client ── key, command ──▶ server        P       the server replies with its clock, twice
                                             U n     the client sends n bytes, the server acknowledges them
                                             D n     the server sends n bytes

The server accepts only clients that know its key, which the job publishes through its store. It listens at the address
that the collectives of this host use, and nowhere else.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import hmac
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Self

from argosy.engine.net import Endpoint, family_of

_COMMAND = struct.Struct("!cQ")
_CLOCKS = struct.Struct("!QQ")
_KEY_BYTES = 16
_PINGS = 40
_CHUNK = 1 << 18
_PROBE_BYTES = 1 << 16
_GROWTH = 16
_MAX_BYTES = 1 << 28
"""A server rejects a command for more."""
_ROUNDS = 2
"""Of each bandwidth the better one counts."""
CONNECT_S = 3.0
_REPLY_S = 10.0


@dataclass(frozen=True)
class LinkFigures:
    """A link, as its client measures it."""

    latency_s: float
    """The shortest round trip of a few bytes."""
    clock_s: float
    """How far the server's clock is ahead of the client's; the error is at most half of the latency."""
    sent: float
    """Bits per second from client to server."""
    received: float
    """Bits per second from server to client."""


class LinkServer:
    """Serves one client at a time, in a thread, until it is closed."""

    def __init__(self, address: str) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._socket = socket.create_server((address, 0), family=family_of(address))
        self.endpoint = Endpoint(address, self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, name="argosy-doctor", daemon=True)
        self._thread.start()

    @property
    def offer(self) -> str:
        """What a client needs to connect."""
        return f"{self.endpoint} {self._key.hex()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes up `accept`
        self._socket.close()
        self._thread.join(_REPLY_S)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            with client, contextlib.suppress(OSError):  # a client that fails reports it itself
                client.settimeout(_REPLY_S)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if hmac.compare_digest(_receive(client, _KEY_BYTES), self._key):
                    _reply(client)


def measure(offer: str, source: str, seconds: float) -> LinkFigures:
    """Measure the link to a server, from this address of the client; some `seconds` for each direction and round."""
    endpoint, key = offer.split()
    host, port = Endpoint.parse(endpoint)
    with socket.create_connection((host, port), CONNECT_S, (source, 0)) as server:
        server.settimeout(_REPLY_S)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.sendall(bytes.fromhex(key))
        latency_s, clock_s = min(_ping(server) for _ in range(_PINGS))
        rates = [_rate(server, command, latency_s, seconds / _ROUNDS) for command in (b"U", b"D")]
        return LinkFigures(latency_s, clock_s, *rates)


def _ping(server: socket.socket) -> tuple[float, float]:
    """Round trip and clock difference, as NTP computes them."""
    sent = time.time_ns()
    began = time.perf_counter_ns()
    server.sendall(_COMMAND.pack(b"P", 0))
    there, back = _CLOCKS.unpack(_receive(server, _CLOCKS.size))
    round_trip = time.perf_counter_ns() - began - (back - there)
    return round_trip / 1e9, ((there - sent) + (back - sent - round_trip)) / 2e9


def _rate(server: socket.socket, command: bytes, latency_s: float, seconds: float) -> float:
    """Bits per second: short probes measure first how many bytes take this long."""

    def bytes_per_s(nbytes: int) -> float:
        return nbytes / max(_transfer(server, command, nbytes) - latency_s, 1e-6)

    # Small ones do not count: up to a burst, a shaped link passes everything at once.
    nbytes = _PROBE_BYTES
    while nbytes < (enough := min(int(bytes_per_s(nbytes) * seconds), _MAX_BYTES)):
        nbytes = min(enough, _GROWTH * nbytes)
    return 8 * max(bytes_per_s(nbytes) for _ in range(_ROUNDS))


def _transfer(server: socket.socket, command: bytes, nbytes: int) -> float:
    """Seconds for a transfer and a round trip."""
    began = time.perf_counter()
    server.sendall(_COMMAND.pack(command, nbytes))
    if command == b"U":
        _send(server, nbytes)
        _receive(server, _CLOCKS.size)
    else:
        _discard(server, nbytes)
    return time.perf_counter() - began


def _reply(client: socket.socket) -> None:
    """The server's side: commands until the client closes the connection."""
    while True:
        command, nbytes = _COMMAND.unpack(_receive(client, _COMMAND.size))
        received_at = time.time_ns()
        if nbytes > _MAX_BYTES:
            return
        if command == b"D":
            _send(client, nbytes)
            continue
        if command == b"U":
            _discard(client, nbytes)
        client.sendall(_CLOCKS.pack(received_at, time.time_ns()))


def _send(peer: socket.socket, nbytes: int) -> None:
    chunk = memoryview(bytes(_CHUNK))
    while nbytes > 0:
        peer.sendall(chunk[: min(nbytes, _CHUNK)])
        nbytes -= _CHUNK


def _discard(peer: socket.socket, nbytes: int) -> None:
    buffer = memoryview(bytearray(_CHUNK))
    while nbytes > 0:
        count = peer.recv_into(buffer[: min(nbytes, _CHUNK)])
        if count == 0:
            raise ConnectionError("the other end has closed the connection")
        nbytes -= count


def _receive(peer: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        part = peer.recv(nbytes - len(data))
        if not part:
            raise ConnectionError("the other end has closed the connection")
        data += part
    return data
