"""ZeroMQ sockets: endpoints, options, sending, and authentication.

Authentication with the job's token: PLAIN with a digest of it, or CURVE with keys derived from it.

ZeroMQ asks a ZAP handler (RFC 27) about each connection; the RPC server handles these requests in its own loop.
With CURVE the server's key pair is derived from the token: without it a process does not know the server's public key,
and no handshake succeeds. PLAIN authenticates and does not encrypt: it is for trusted networks.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import hmac
import ipaddress
import resource
import socket
import time
from hashlib import blake2b
from socket import SHUT_RDWR
from typing import Any

import zmq
from zmq.utils import z85

from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.rpc.wire import FRAME_BYTES, Frames

_IN_USE_S = 5.0
"""How long a server waits for its port: the previous server may still be exiting."""


def connect(sock: "zmq.Socket[Any]", endpoint: str) -> None:
    """Connect, now or as soon as a server listens there."""
    target = Endpoint.parse(endpoint)
    sock.ipv6 = ":" in target.host
    sock.connect(f"tcp://{target}")


def bind(sock: "zmq.Socket[Any]", endpoint: str, settings: RpcSettings) -> str:
    """Listen at exactly this address; returns it with the port that the system chose for port 0."""
    host, port = Endpoint.parse(endpoint, least_port=0)
    address = _resolve(host, endpoint)
    if not (settings.token or ipaddress.ip_address(address).is_loopback):
        raise ConfigError(
            f"a parameter server at {endpoint} without a job token would accept any client; "
            "without one only loopback addresses are allowed; give all processes the same ARGOSY_JOB_TOKEN"
        )
    sock.ipv6 = ":" in address
    url = f"tcp://{Endpoint(address, port)}"
    until = time.monotonic() + _IN_USE_S
    while True:
        try:
            sock.bind(url)
        except zmq.ZMQError as e:
            if e.errno != zmq.EADDRINUSE:
                raise ConfigError(
                    f"cannot listen at {endpoint}: {e}; use an address of this host and a free port"
                ) from e
            if time.monotonic() > until:
                raise ConfigError(
                    f"cannot listen at {endpoint}: another process has had this port for {_IN_USE_S:g} s; "
                    "end it, or use another port"
                ) from e
            time.sleep(0.1)
        else:
            bound = Endpoint.parse(sock.get_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
            return str(Endpoint(host, bound.port))


def _resolve(host: str, endpoint: str) -> str:
    """The IP address of a host: ZeroMQ binds to addresses, not to host names."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as e:
        raise ConfigError(
            f"{endpoint}: unknown host {host!r} ({e}); use a name or an address of this host"
        ) from e


_libc = ctypes.CDLL(None, use_errno=True)
# Plain ints: pyzmq's enums cost as much as the calls that use them.
_LAST, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_COPY_BYTES = 1 << 16
"""Below this size a copy is cheaper than zero-copy with its completion callback."""
_SEAL_BYTES = 256
"""More than CURVE adds to a frame."""
_HANDSHAKE_MS = 5000
"""A peer that has not authenticated by then is disconnected."""
_LOST_S = 20
"""A connection whose peer acknowledges nothing for this long is closed."""


def tune(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Options of both sides: unlimited queues, and detection of dead connections."""
    socket.sndhwm = socket.rcvhwm = (
        0  # clients limit their requests; at a high-water mark a ROUTER silently drops replies
    )
    socket.maxmsgsize = FRAME_BYTES + _SEAL_BYTES
    socket.handshake_ivl = _HANDSHAKE_MS
    socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, _LOST_S // 2
    socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 5, _LOST_S // 10
    socket.set(zmq.TCP_MAXRT, _LOST_S * 1000)


def tune_client(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Options of the connecting side.

    IMMEDIATE stays off: with it ZeroMQ drops replies that have arrived and were not read when a connection closes, such
    as the last one of a server that stops. LINGER 0: after a close no reply is needed.
    """
    tune(socket, settings)
    socket.linger = 0
    socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1000
    socket.connect_timeout = 3000


def descriptor_limit() -> int:
    """The process's limit of open descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def end_connection(descriptor: int) -> None:
    """Shut down a connection that ZeroMQ has accepted; ZeroMQ closes it. No effect if it is closed already."""
    _libc.shutdown(descriptor, SHUT_RDWR)


def send(socket: "zmq.Socket[Any]", frames: Frames) -> None:
    """Send a message, large frames without a copy; raises zmq.Again if there is no connection."""
    last = len(frames) - 1
    for i, frame in enumerate(frames):
        socket.send(frame, _LAST if i == last else _MORE, copy=len(frame) < _COPY_BYTES)


def descriptor(socket: "zmq.Socket[Any]") -> int:
    """The socket's edge-triggered descriptor: reading the socket's events resets it."""
    return int(socket.get(zmq.FD))


def is_readable(socket: "zmq.Socket[Any]") -> bool:
    """Whether a message has arrived."""
    return int(socket.get(zmq.EVENTS)) & _IN != 0


def is_writable(socket: "zmq.Socket[Any]") -> bool:
    """Whether a message can be sent."""
    return int(socket.get(zmq.EVENTS)) & _OUT != 0


ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_DOMAIN = b"argosy"


def guard_server(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Accept only connections with the token on this socket; its ZAP requests must be handled."""
    socket.zap_domain = _DOMAIN
    if settings.encrypt:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = _server_keys(settings.token)
    else:
        socket.plain_server = True


def guard_client(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Authenticate this socket's connections with the token."""
    if settings.encrypt:
        socket.curve_serverkey = _server_keys(settings.token)[0]
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    else:
        socket.plain_username = _DOMAIN
        socket.plain_password = _password(settings.token)


def handle_zap_request(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Receive one ZAP request and reply whether to accept the connection."""
    version, request, _domain, _address, _identity, mechanism, *credentials = socket.recv_multipart()
    if settings.encrypt:  # the handshake succeeds only with the server's public key
        is_accepted = mechanism == b"CURVE"
    else:
        expected = [_DOMAIN, _password(settings.token)]
        is_accepted = mechanism == b"PLAIN" and hmac.compare_digest(
            b"\0".join(credentials), b"\0".join(expected)
        )
    status, text = (b"200", b"OK") if is_accepted else (b"400", b"wrong token")
    socket.send_multipart([version, request, status, text, b"", b""])


def _password(token: str) -> bytes:
    """A digest: the token may be long, and must not be readable on the wire."""
    return blake2b(token.encode(), digest_size=32, person=b"argosy-ps-plain").hexdigest().encode()


def _server_keys(token: str) -> tuple[bytes, bytes]:
    secret = z85.encode(blake2b(token.encode(), digest_size=32, person=b"argosy-ps-curve").digest())
    return zmq.curve_public(secret), secret
