"""How fast the links of a lab are: sockets in two hosts, used by this process."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator

from lab.namespaces import inside
from lab.network import Lab

_BLOCK = 1 << 18


@contextlib.contextmanager
def connection(lab: Lab, sender: int, receiver: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection between two hosts."""
    with inside(lab.names[receiver]):
        server = socket.create_server((lab.addresses[receiver], 0))
    with server, inside(lab.names[sender]):
        ours = socket.create_connection(server.getsockname(), timeout=10)
        theirs, _ = server.accept()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield ours, theirs


def throughput(lab: Lab, sender: int = 0, receiver: int = 1, seconds: float = 1.0) -> float:
    """Bits per second that arrive over one connection, after it has got up to speed."""
    with connection(lab, sender, receiver) as (ours, theirs):
        return flow(ours, theirs, seconds)


def flow(ours: socket.socket, theirs: socket.socket, seconds: float = 1.0) -> float:
    """Bits per second that arrive at the other end, after it has got up to speed; nothing can be sent then."""
    thread = threading.Thread(target=_send, args=(ours, time.monotonic() + 1.2 * seconds))
    thread.start()
    _receive(theirs, 0.1 * seconds)
    received = _receive(theirs, seconds)
    while theirs.recv(_BLOCK):
        pass
    thread.join()
    return received


def loopback() -> float:
    """Bits per second over one connection of this host with itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname(), timeout=10)
        theirs, _ = server.accept()
    with ours, theirs:
        return flow(ours, theirs)


def _send(end: socket.socket, until: float) -> None:
    block = bytes(_BLOCK)
    while time.monotonic() < until:
        end.sendall(block)
    end.shutdown(socket.SHUT_WR)


def _receive(end: socket.socket, seconds: float) -> float:
    buffer = bytearray(_BLOCK)
    count, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        count += end.recv_into(buffer)
    return 8 * count / passed


def round_trip(lab: Lab, sender: int = 0, receiver: int = 1, times: int = 200) -> float:
    """Seconds for one byte there and one back, the median."""
    received = []
    with connection(lab, sender, receiver) as (ours, theirs):
        for _ in range(times):
            began = time.perf_counter()
            ours.send(b"?")
            theirs.recv(1)
            theirs.send(b"!")
            ours.recv(1)
            received.append(time.perf_counter() - began)
    return statistics.median(received)
