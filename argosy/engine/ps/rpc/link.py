"""A client's connection to one server, and its pending requests.

A request that may be lost is not sent again at once: a query without tensors asks the server whether it has it.

    request 7 ──▶ ✗                        the connection breaks, the server restarts, or 2, 4, 8 s pass
    query 7   ──▶ known: the server replies when it has the result, or sends the stored reply again
              ◀── not_found 7
    request 7 ──▶                          the same number: the server executes it only once

Not thread-safe: the client's lock guards it.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import zmq
from torch import Tensor
from zmq.utils.monitor import parse_monitor_message

from argosy.engine.errors import BadMessage, DeadlineError, RefusedError, RpcError
from argosy.engine.log import logger
from argosy.engine.ps.rpc import sockets
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.rpc.wire import VERSION, Frames, Header, Limits, decode, encode


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply."""

    meta: dict[str, Any]
    tensors: list[Tensor]
    """Writable; no other code refers to them."""


class Waiter(Protocol):
    """The client, as a pending reply uses it."""

    def wait_for(self, reply: "PendingReply", what: str) -> None:
        """Return once the request has completed."""

    def receive(self, reply: "PendingReply") -> None:
        """Process the messages that have arrived."""

    def cancel(self, reply: "PendingReply") -> None:
        """Complete the request without its reply."""


class PendingReply:
    """A future: the reply to one request, or the error that ended it."""

    def __init__(self, client: Waiter, server: int, kind: str, id_: int, frames: Frames, now: float) -> None:
        self.client, self.server, self.kind, self.id, self.frames = client, server, kind, id_, frames
        self.what = kind
        self.started = self.last_seen = now
        """`last_seen`: when the server last sent something about this request."""
        self.status = ""
        """The server's last progress message."""
        self.is_sent = False
        self.due: Literal["", "send", "query"] = "send"
        """What to send as soon as there is a connection: the request, or a query for it."""
        self.queries, self.query_at = 0, now
        self.result: Reply | None = None
        self.error: RpcError | None = None

    def is_done(self) -> bool:
        """Whether `wait` returns, or raises, without blocking."""
        if not self.is_over:
            self.client.receive(self)
        return self.is_over

    def wait(self, what: str = "") -> Reply:
        """Wait for the reply. `what` describes the request in log lines: "push of w.block0"."""
        if not self.is_over:
            self.client.wait_for(self, what or self.kind)
        if self.error is not None:
            raise self.error
        assert self.result is not None, f"{self.kind} {self.id} has completed without a reply"
        return self.result

    def cancel(self) -> None:
        """Discard the request: the client neither waits for it nor sends it to a restarted server."""
        if not self.is_over:
            self.client.cancel(self)

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.error is not None

    def end(self, result: Reply | RpcError) -> None:
        """Complete the request, and release the tensors that it sent."""
        if isinstance(result, Reply):
            self.result = result
        else:
            self.error = result
        self.frames = []


_STUCK_S = 5.0
"""ZeroMQ tries to connect at least once a second; without an attempt for this long, it has given up."""
_FAILED, _FAILED_S = 4, 10.0
"""This many failed handshakes within this time mean that the keys differ; with a busy server they take longer."""
_EVENTS = (
    zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)  # fmt: skip


class Link:
    """A DEALER socket with the monitor of its connection."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        endpoint: str,
        settings: RpcSettings,
        me: Header,
        now: float,
    ) -> None:
        self.endpoint, self._settings, self._me = endpoint, settings, me
        self._limits = Limits(settings.max_message_bytes)
        self.pending: dict[int, PendingReply] = {}
        self._due: list[PendingReply] = []
        self.next_id = 1
        self.incarnation = ""
        """The server's, as of its last message."""
        self.last_seen = -1e9
        """When the last message of the server arrived."""
        self.rejected = ""
        """Not empty: why the server does not accept this process."""
        self._state: Literal["disconnected", "handshake", "connected"] = "disconnected"
        self._was_connected = False
        self._failures: list[float] = []
        self._event_at = now
        self._socket = context.socket(zmq.DEALER)
        sockets.tune_client(self._socket, settings)
        sockets.guard_client(self._socket, settings)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        sockets.connect(self._socket, endpoint)
        self.descriptors = (sockets.descriptor(self._socket), sockets.descriptor(self._monitor))

    @property
    def acked_below(self) -> int:
        """All requests below this number have completed."""
        return next(iter(self.pending), self.next_id)

    def header(self, kind: str, id_: int) -> Header:
        """A header of this client, with the current acknowledgement."""
        me = self._me
        return Header(VERSION, kind, id_, me.client, me.who, me.trainer, self.acked_below)

    def start(self, reply: PendingReply) -> None:
        """Send a new request, or queue it until there is a connection."""
        reply.query_at = reply.started + self._settings.retry_s
        self.pending[reply.id] = reply
        self.next_id = reply.id + 1
        if self.rejected:
            self._end(reply, RefusedError(self.rejected))
            return
        self._due.append(reply)
        self._send_due()

    def receive(self, now: float) -> bool:
        """Process all messages that have arrived, send what is queued; True if requests have completed."""
        completed = False
        while sockets.is_readable(self._socket):
            frames = [self._socket.recv(copy=False)]
            while frames[-1].more:
                frames.append(self._socket.recv(copy=False))
            completed |= self._handle(frames, now)
        if self._due and sockets.is_writable(self._socket):
            self._send_due()
        return completed

    def poll(self, now: float) -> bool:
        """Check deadlines, retries and the connection; True if requests have completed."""
        completed = self._check_connection(now)
        completed |= self.receive(now)
        is_alive = now - self.last_seen < 3 * self._settings.heartbeat_s + 1
        for reply in list(self.pending.values()):
            if now - reply.last_seen >= self._settings.deadline_s:
                self._end(reply, self._deadline_error(reply))
                completed = True
            elif (
                is_alive
                and reply.is_sent
                and now >= reply.query_at
                and reply.queries < self._settings.retry_times
            ):
                self._query(reply)
                reply.queries += 1
                reply.query_at = now + self._settings.retry_s * 2**reply.queries
        self._send_due()
        return completed

    def note_incarnation(self, incarnation: str) -> None:
        """The server's incarnation; a new one has none of the requests that were sent to the previous one."""
        if self.incarnation and incarnation != self.incarnation:
            logger.info("server %s has restarted; querying pending requests", self.endpoint)
            self._query_all()
        self.incarnation = incarnation

    def cancel(self, reply: PendingReply) -> None:
        """Complete a request whose reply is not needed."""
        self._end(
            reply, RpcError(f"{reply.kind} {reply.id} was cancelled; do not wait for a cancelled request")
        )

    def end_all(self, error: RpcError) -> None:
        """Complete all pending requests with this error."""
        for reply in list(self.pending.values()):
            self._end(reply, error)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    # --- sending ---------------------------------------------------------------------------------------

    def _send_due(self) -> None:
        for i, reply in enumerate(self._due):
            if not reply.is_over:
                try:
                    is_query = reply.due == "query"
                    sockets.send(
                        self._socket, encode(self.header("query", reply.id)) if is_query else reply.frames
                    )
                except zmq.Again:
                    del self._due[:i]
                    return
                reply.is_sent, reply.due = True, ""
        self._due.clear()

    def _query(self, reply: PendingReply) -> None:
        if not reply.due:
            reply.due = "query"
            self._due.append(reply)

    def _query_all(self) -> None:
        for reply in self.pending.values():
            if reply.is_sent:
                self._query(reply)

    # --- receiving -------------------------------------------------------------------------------------

    def _handle(self, frames: list[zmq.Frame], now: float) -> bool:
        self.last_seen = now
        try:
            message = decode(frames, self._limits)
        except BadMessage as e:
            return self._handle_malformed(e)
        header = message.header
        self.note_incarnation(header.server)
        reply = self.pending.get(header.id)
        if reply is None:  # a duplicate reply
            return False
        match header.kind:
            case "reply":
                self._end(reply, Reply(header.meta, message.tensors))
            case "reject":
                self._end(reply, RefusedError(str(header.meta.get("text"))))
            case "progress":
                reply.status, reply.last_seen = str(header.meta.get("text")), now
                # The server has the request. The queries are for the time after its last message: a long wait
                # must not use them up, or a reply that is lost at its end is never asked for.
                reply.queries, reply.query_at = 0, now + self._settings.retry_s
            case "not_found":
                if not reply.due:
                    self._due.append(reply)
                reply.due = "send"
        return reply.is_over

    def _handle_malformed(self, error: BadMessage) -> bool:
        reply = self.pending.get(error.header.id) if isinstance(error.header, Header) else None
        if reply is None:
            logger.warning("server %s: dropping a malformed reply: %s", self.endpoint, error)
            return False
        self._end(reply, error)
        return True

    def _end(self, reply: PendingReply, result: Reply | RpcError) -> None:
        del self.pending[reply.id]
        reply.end(result)

    def _deadline_error(self, reply: PendingReply) -> DeadlineError:
        connected = "is connected and" if self._state == "connected" else "is not connected and"
        return DeadlineError(
            f"server {self.endpoint} {connected} has not replied for {self._settings.deadline_s:g} s to "
            f"{reply.what!r} (request {reply.kind} {reply.id}); is it running? see its serverlog; "
            "if it only needs more time, raise FLAGS_rpc_deadline (milliseconds)"
        )

    # --- the connection --------------------------------------------------------------------------------

    def _check_connection(self, now: float) -> bool:
        while sockets.is_readable(self._monitor):
            self._handle_event(parse_monitor_message(self._monitor.recv_multipart())["event"], now)
            self._event_at = now
        if len(self._failures) >= _FAILED and not (self._was_connected or self.rejected):
            self.rejected = self._rejected_text("it closed the connection during every handshake")
        if self.rejected:
            completed = bool(self.pending)
            self.end_all(RefusedError(self.rejected))
            return completed
        if self._state == "disconnected" and now - self._event_at > _STUCK_S:
            self._reconnect(now)
        return False

    def _handle_event(self, event: int, now: float) -> None:
        match event:
            case zmq.EVENT_CONNECTED:
                self._state = "handshake"
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state, self._failures, self.rejected = "connected", [], ""
                # Not at the disconnect: a query sent then may still enter the old connection's queue.
                if self._was_connected:
                    self._query_all()
                self._was_connected = True
            case zmq.EVENT_DISCONNECTED:
                self._state = "disconnected"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._state, self.rejected = (
                    "disconnected",
                    self._rejected_text("it rejected this process's token"),
                )
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._state = "disconnected"
                if not self._was_connected:
                    self.rejected = self._rejected_text("it speaks another protocol")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._state = "disconnected"
                self._failures = [*(at for at in self._failures if now - at < _FAILED_S), now]

    def _rejected_text(self, why: str) -> str:
        return (
            f"server {self.endpoint} does not accept this process: {why}; all processes of a job need the same "
            "ARGOSY_JOB_TOKEN and the same ARGOSY_PS_ENCRYPT, and the port must be a parameter server's"
        )

    def _reconnect(self, now: float) -> None:
        """Connect explicitly: after a protocol violation ZeroMQ does not reconnect."""
        self._event_at = now
        try:
            self._socket.disconnect(self._socket.get_string(zmq.LAST_ENDPOINT))
        except zmq.ZMQError:
            logger.debug("server %s: ZeroMQ had already dropped the connection", self.endpoint)
        sockets.connect(self._socket, self.endpoint)
