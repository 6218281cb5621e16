"""ZeroMQ sockets: settings, endpoints, options, authentication, the socket of a server, the state of connections.

Authentication with the job's token: PLAIN with a digest of it, or CURVE with keys derived from it.

ZeroMQ asks a ZAP handler (RFC 27) about each connection; the RPC server handles these requests in its own loop.
With CURVE the server's key pair is derived from the token: without it a process does not know the server's public key,
and no handshake succeeds. PLAIN authenticates and does not encrypt: it is for trusted networks.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import hmac
import ipaddress
import os
import resource
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import blake2b
from socket import SHUT_RDWR
from typing import Any, Literal, TypeAlias

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc.wire import FRAME_BYTES, Frames

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
_VARIABLES = {
    "send_threads": "FLAGS_rpc_send_thread_num",
    "get_threads": "FLAGS_rpc_get_thread_num",
    "prefetch_threads": "FLAGS_rpc_prefetch_thread_num",
    "deadline_s": "FLAGS_rpc_deadline, in ms",
    "max_message_mb": "ARGOSY_PS_MAX_MESSAGE_MB",
}


@dataclass(frozen=True)
class RpcSettings:
    """Settings of the transport; the same in every process of a job."""

    send_threads: int = 12
    """Threads of a server that run pushes."""
    get_threads: int = 12
    """Threads of a server that run pulls."""
    prefetch_threads: int = 12
    """Threads of a server that look up rows."""
    deadline_s: float = 180.0
    """A request fails if the server sends nothing about it for this long."""
    retry_times: int = 3
    """How often a responsive server is queried about a request without a reply."""
    retry_s: float = 2.0
    """Delay of the first query; it doubles for each further one."""
    heartbeat_s: float = 1.0
    heartbeat_timeout_s: float = 20.0
    """A trainer without a message for this long is unresponsive."""
    token: str = ""
    """The secret of the job; empty: loopback addresses only."""
    encrypt: bool = False
    """CURVE instead of PLAIN."""
    max_message_mb: int = 2048
    notice_s: float = 10.0
    """A waiting client logs this often."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "retry_times" else 1 if isinstance(value, int) else 1e-3
            if not isinstance(value, bool | str) and not value >= least:
                where = f" ({_VARIABLES[field.name]})" if field.name in _VARIABLES else ""
                raise ConfigError(f"{field.name} = {value!r}{where} is too small; use {least} or more")
        if self.encrypt and not self.token:
            raise ConfigError(
                "encryption without a job token, from which the keys are derived; set ARGOSY_JOB_TOKEN"
            )

    @classmethod
    def from_env(cls) -> "RpcSettings":
        """The values of FLAGS_rpc_* and ARGOSY_*, else the defaults."""
        return cls(
            send_threads=env.number("FLAGS_rpc_send_thread_num", default=cls.send_threads),
            get_threads=env.number("FLAGS_rpc_get_thread_num", default=cls.get_threads),
            prefetch_threads=env.number("FLAGS_rpc_prefetch_thread_num", default=cls.prefetch_threads),
            deadline_s=env.number("FLAGS_rpc_deadline", default=round(cls.deadline_s * 1000)) / 1000,
            retry_times=env.number("FLAGS_rpc_retry_times", default=cls.retry_times),
            heartbeat_s=env.seconds("ARGOSY_HEARTBEAT_S", cls.heartbeat_s),
            heartbeat_timeout_s=env.seconds("ARGOSY_PS_HEARTBEAT_TIMEOUT_S", cls.heartbeat_timeout_s),
            token=env.text("ARGOSY_JOB_TOKEN", cls.token),
            encrypt=env.flag("ARGOSY_PS_ENCRYPT", cls.encrypt),
            max_message_mb=env.number("ARGOSY_PS_MAX_MESSAGE_MB", default=cls.max_message_mb),
        )

    @property
    def max_message_bytes(self) -> int:
        return self.max_message_mb << 20


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
_LINGER_MS = 2000
"""How long sending the last replies of a server may take."""
_HANDSHAKE_MS = 5000
"""A peer that has not authenticated by then is disconnected."""
_LOST_S = 20
"""A connection whose peer acknowledges nothing for this long is closed."""


def tune(socket: "zmq.Socket[Any]") -> None:
    """Options of both sides: unlimited queues, and detection of dead connections."""
    # No high-water mark: at it a ROUTER silently drops replies. Clients limit their requests themselves.
    socket.sndhwm = socket.rcvhwm = 0
    socket.maxmsgsize = FRAME_BYTES + _SEAL_BYTES
    socket.handshake_ivl = _HANDSHAKE_MS
    socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, _LOST_S // 2
    socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 5, _LOST_S // 10
    socket.set(zmq.TCP_MAXRT, _LOST_S * 1000)


def tune_client(socket: "zmq.Socket[Any]") -> None:
    """Options of the connecting side.

    IMMEDIATE stays off: with it ZeroMQ drops replies that have arrived and were not read when a connection closes, such
    as the last one of a server that stops. LINGER 0: after a close no reply is needed.
    """
    tune(socket)
    socket.linger = 0
    socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1000
    socket.connect_timeout = 3000


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


_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_DOMAIN = b"argosy"
_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_RESERVED_DESCRIPTORS = 64
"""Reserved for files: a connection whose descriptor is closer to the process's limit is closed."""


def guard_client(socket: "zmq.Socket[Any]", settings: RpcSettings) -> None:
    """Authenticate this socket's connections with the token."""
    if settings.encrypt:
        socket.curve_serverkey = _server_keys(settings.token)[0]
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    else:
        socket.plain_username = _DOMAIN
        socket.plain_password = _password(settings.token)


class Authenticator:
    """Authenticates the connections of one server socket (ZAP), and closes those that exceed the descriptor limit."""

    def __init__(self, context: Context, settings: RpcSettings, on_rejected: Callable[[str], None]) -> None:
        """`on_rejected` is called with the reason for each rejected connection."""
        self._settings, self._on_rejected = settings, on_rejected
        self._most_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED_DESCRIPTORS
        # Bind the ZAP handler before the public socket, so that no connection is accepted unauthenticated.
        self._zap_socket = context.socket(zmq.REP)
        self._zap_socket.bind(_ZAP_ENDPOINT)
        self._events: zmq.Socket[Any] | None = None

    def guard(self, socket: "zmq.Socket[Any]") -> None:
        """Accept only authenticated connections on this socket; called before it is bound."""
        socket.zap_domain = _DOMAIN
        if self._settings.encrypt:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = _server_keys(self._settings.token)
        else:
            socket.plain_server = True
        self._events = socket.get_monitor_socket(_FAILURES | zmq.EVENT_ACCEPTED)

    @property
    def descriptors(self) -> list[int]:
        return [descriptor(sock) for sock in (self._zap_socket, self._events) if sock is not None]

    def handle(self) -> None:
        """Reply to pending ZAP requests, and process the events of connections."""
        while is_readable(self._zap_socket):
            self._handle_zap_request()
        while self._events is not None and is_readable(self._events):
            event = parse_monitor_message(self._events.recv_multipart())
            if event["event"] != zmq.EVENT_ACCEPTED:
                is_token = event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH
                self._on_rejected("wrong token" if is_token else "malformed handshake")
            elif event["value"] >= self._most_descriptors:
                _libc.shutdown(event["value"], SHUT_RDWR)  # ZeroMQ then closes it
                self._on_rejected("too many connections; raise the limit of open files (ulimit -n)")

    def _handle_zap_request(self) -> None:
        """Receive one ZAP request and reply whether to accept the connection."""
        message = self._zap_socket.recv_multipart()
        version, request, _domain, _address, _identity, mechanism, *credentials = message
        if self._settings.encrypt:  # the handshake succeeds only with the server's public key
            is_accepted = mechanism == b"CURVE"
        else:
            expected = [_DOMAIN, _password(self._settings.token)]
            is_accepted = mechanism == b"PLAIN" and hmac.compare_digest(
                b"\0".join(credentials), b"\0".join(expected)
            )
        status, text = (b"200", b"OK") if is_accepted else (b"400", b"wrong token")
        self._zap_socket.send_multipart([version, request, status, text, b"", b""])

    def close(self) -> None:
        for sock in (self._zap_socket, self._events):
            if sock is not None:
                sock.close(linger=0)


def _password(token: str) -> bytes:
    """A digest: the token may be long, and must not be readable on the wire."""
    return blake2b(token.encode(), digest_size=32, person=b"argosy-ps-plain").hexdigest().encode()


def _server_keys(token: str) -> tuple[bytes, bytes]:
    secret = z85.encode(blake2b(token.encode(), digest_size=32, person=b"argosy-ps-curve").digest())
    return zmq.curve_public(secret), secret


class ServerSocket:
    """A ROUTER socket that accepts authenticated connections. One thread receives, any thread sends.

    The lock guards it; it is held for all methods but `poll`.
    """

    def __init__(
        self, endpoint: str, settings: RpcSettings, lock: threading.RLock, counts: Counter[str]
    ) -> None:
        """`counts`: bytes_in, bytes_out and rejected_connections are counted here."""
        self._lock, self._counts = lock, counts
        self.is_closed = False
        self._thread = 0
        self._context: Context = zmq.Context()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._authenticator = Authenticator(self._context, settings, self._note_rejected)
            self._socket = self._context.socket(zmq.ROUTER)
            tune(self._socket)
            self._socket.linger = _LINGER_MS
            self._authenticator.guard(self._socket)
            self.endpoint = bind(self._socket, endpoint, settings)
        except BaseException:
            self._context.destroy(linger=0)
            os.close(self._wake)
            raise
        self._auth_descriptors = frozenset(self._authenticator.descriptors)
        self._poller = select.poll()
        for number in (descriptor(self._socket), *self._auth_descriptors, self._wake):
            self._poller.register(number, select.POLLIN)

    def begin(self) -> None:
        """This thread receives from now on."""
        self._thread = threading.get_ident()
        self._authenticator.handle()  # a descriptor becomes readable only after its socket was read once

    @property
    def is_served(self) -> bool:
        return self._thread != 0

    def poll(self, timeout_s: float) -> None:
        """Wait until messages may have arrived, or `wake` is called; authenticate new connections."""
        ready = [number for number, _ in self._poller.poll(timeout_s * 1000)]
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if not self._auth_descriptors.isdisjoint(ready):
            self._authenticator.handle()

    def receive(self) -> tuple[bytes, list[zmq.Frame]] | None:
        """The next message and the route to its sender; None if none has arrived."""
        if not is_readable(self._socket):
            return None
        route = self._socket.recv()
        frames = [self._socket.recv(copy=False)]
        while frames[-1].more:
            frames.append(self._socket.recv(copy=False))
        self._counts["bytes_in"] += sum(map(len, frames))
        return route, frames

    def send(self, route: bytes, frames: Frames) -> None:
        """Send a message; it is dropped if the socket is closed."""
        if self.is_closed:
            logger.info("dropping a reply: the server has stopped")
            return
        self._counts["bytes_out"] += sum(map(len, frames))
        self._socket.send(route, zmq.SNDMORE)
        send(self._socket, frames)
        if threading.get_ident() != self._thread and is_readable(self._socket):
            os.eventfd_write(self._wake, 1)

    def wake(self) -> None:
        """Make `poll` return."""
        if not self.is_closed:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            # First: an event without a reader would block ZeroMQ's thread, and with it this call, for ever.
            self._socket.disable_monitor()
            self._authenticator.close()
            self._socket.close()
            self._context.term()
            os.close(self._wake)

    def _note_rejected(self, why: str) -> None:
        with self._lock:
            self._counts["rejected_connections"] += 1
            count = self._counts["rejected_connections"]
        if count % 100 == 1:
            logger.warning("%s: rejected connection number %d: %s", self.endpoint, count, why)


_STUCK_S = 5.0
"""ZeroMQ tries to connect at least once a second; without an attempt for this long, it has given up."""
_FAILED, _FAILED_S = 4, 10.0
"""This many failed handshakes within this time mean that the keys differ; with a busy server they take longer."""
_EVENTS = (
    zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)  # fmt: skip


class ConnectionMonitor:
    """The state of the connection to one server, from the events of ZeroMQ's monitor."""

    def __init__(self, socket: "zmq.Socket[bytes]", endpoint: str, now: float) -> None:
        """Called before the socket is connected, so that no event is missed."""
        self._socket, self._endpoint = socket, endpoint
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self.descriptor = descriptor(self._monitor)
        self.rejected = ""
        """Not empty: why the server does not accept this process."""
        self._state: Literal["disconnected", "handshake", "connected"] = "disconnected"
        self._was_connected = False
        self._failures: list[float] = []
        self._event_at = now

    @property
    def is_connected(self) -> bool:
        return self._state == "connected"

    def poll(self, now: float) -> bool:
        """Process all events; True if a connection was established again: requests may have been lost."""
        has_reconnected = False
        while is_readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            # Not at the disconnect: a query sent then may still enter the old connection's queue.
            has_reconnected |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self._was_connected
            self._handle_event(event, now)
            self._event_at = now
        if len(self._failures) >= _FAILED and not (self._was_connected or self.rejected):
            self.rejected = self._rejected_text("it closed the connection during every handshake")
        if not self.rejected and self._state == "disconnected" and now - self._event_at > _STUCK_S:
            self._reconnect(now)
        return has_reconnected

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _handle_event(self, event: int, now: float) -> None:
        match event:
            case zmq.EVENT_CONNECTED:
                self._state = "handshake"
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state, self._failures, self.rejected = "connected", [], ""
                self._was_connected = True
            case zmq.EVENT_DISCONNECTED:
                self._state = "disconnected"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._state = "disconnected"
                self.rejected = self._rejected_text("it rejected this process's token")
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._state = "disconnected"
                if not self._was_connected:
                    self.rejected = self._rejected_text("it uses another protocol")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._state = "disconnected"
                self._failures = [*(at for at in self._failures if now - at < _FAILED_S), now]

    def _rejected_text(self, why: str) -> str:
        return (
            f"server {self._endpoint} does not accept this process: {why}; all processes of a job need the same "
            "ARGOSY_JOB_TOKEN and the same ARGOSY_PS_ENCRYPT, and the port must be a parameter server's"
        )

    def _reconnect(self, now: float) -> None:
        """Connect explicitly: after a protocol violation ZeroMQ does not reconnect."""
        self._event_at = now
        try:
            self._socket.disconnect(self._socket.get_string(zmq.LAST_ENDPOINT))
        except zmq.ZMQError:
            logger.debug("server %s: ZeroMQ had already dropped the connection", self._endpoint)
        connect(self._socket, self._endpoint)
