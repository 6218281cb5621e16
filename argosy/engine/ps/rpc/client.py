"""The RPC client: sends requests to any of the servers, and waits for their replies.

    start ──▶ handed to ZeroMQ, whose I/O thread sends
    wait  ──▶ one of the waiting threads polls for all; the others sleep until it notifies them

One lock guards the sockets. It is not held while polling, which only reads file descriptors: `start` never blocks on
a thread that waits. ZeroMQ's descriptor is edge-triggered, so a thread that uses a socket reads all that has arrived.

A request that may be lost is not sent again at once: a query without tensors asks the server whether it has it.

    request 7 ──▶ ✗                        the connection breaks, the server restarts, or 2, 4, 8 s pass
    query 7   ──▶ known: the server replies when it has the result, or sends the stored reply again
              ◀── not_found 7
    request 7 ──▶                          the same number: the server executes it only once
"""

# SPDX-License-Identifier: Apache-2.0
import os
import select
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import zmq
from torch import Tensor

from argosy.engine.errors import BadMessage, ConfigError, DeadlineError, ProgramError, RejectedError, RpcError
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics import counters
from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc import sockets
from argosy.engine.ps.rpc.heartbeat import Heartbeat
from argosy.engine.ps.rpc.sockets import ConnectionMonitor, Context, RpcSettings
from argosy.engine.ps.rpc.wire import VERSION, Frames, Header, Limits, decode, encode

_POLL_S = 0.5
"""A waiting thread checks deadlines and connections this often."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply."""

    meta: dict[str, Any]
    tensors: list[Tensor]
    """Writable; no other code refers to them."""


class PendingReply:
    """A future: the reply to one request, or the error that ended it."""

    def __init__(
        self, client: "Client", server: int, kind: str, id_: int, frames: Frames, now: float
    ) -> None:
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


class ServerLink:
    """A DEALER socket connected to one server, and its pending requests. The client's lock guards it."""

    def __init__(
        self,
        context: Context,
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
        self._socket = context.socket(zmq.DEALER)
        sockets.tune_client(self._socket)
        sockets.guard_client(self._socket, settings)
        self._monitor = ConnectionMonitor(self._socket, endpoint, now)
        sockets.connect(self._socket, endpoint)
        self.descriptors = (sockets.descriptor(self._socket), self._monitor.descriptor)

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
        if self._monitor.rejected:
            self._end(reply, RejectedError(self._monitor.rejected))
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
        if self._monitor.poll(now):
            self._query_all()
        completed = bool(self._monitor.rejected and self.pending)
        if self._monitor.rejected:
            self.end_all(RejectedError(self._monitor.rejected))
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
        self._monitor.close()
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
                self._end(reply, RejectedError(str(header.meta.get("text"))))
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
        connected = "is connected and" if self._monitor.is_connected else "is not connected and"
        return DeadlineError(
            f"server {self.endpoint} {connected} has not replied for {self._settings.deadline_s:g} s to "
            f"{reply.what!r} (request {reply.kind} {reply.id}); is it running? see its serverlog; "
            "if it only needs more time, raise FLAGS_rpc_deadline (milliseconds)"
        )


class Client:
    """A process's connections to all servers; can be used by several threads."""

    def __init__(
        self, endpoints: Sequence[str], who: str, trainer: int = -1, settings: RpcSettings | None = None
    ) -> None:
        if not endpoints:
            raise ConfigError("a client without servers; give at least one endpoint")
        if len(who) > 100 or trainer < -1:
            raise ConfigError(
                f"client {who[:100]!r}, trainer {trainer}: use a short name and a number from 0 on, or -1"
            )
        for endpoint in endpoints:
            Endpoint.parse(endpoint)
        self._settings = settings or RpcSettings.from_env()
        self._limits = Limits(self._settings.max_message_bytes)
        self.incarnation = uuid.uuid4().hex
        self._pid, self._is_closed = os.getpid(), False
        self._lock = threading.Lock()
        self._completed = threading.Condition(self._lock)
        self._is_polled = False
        """Whether a thread polls; it does not hold the lock."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: Context = zmq.Context()
        me = Header(VERSION, "", 0, self.incarnation, who, trainer)
        now = time.monotonic()
        self._links = [ServerLink(self._context, endpoint, self._settings, me, now) for endpoint in endpoints]
        self._by_descriptor = {link.descriptors[0]: link for link in self._links}
        self._poller = select.poll()
        for descriptor in [self._wake, *(d for link in self._links for d in link.descriptors)]:
            self._poller.register(descriptor, select.POLLIN)
        self._heartbeat = Heartbeat(
            self._context, endpoints, self._settings, self._make_header, self._on_heartbeat, self._tick
        )
        self._heartbeat.start()

    def start(
        self, server: int, kind: str, meta: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()
    ) -> PendingReply:
        """Send a request and return at once; the tensors must not change until the reply arrives."""
        self._check()
        now = time.monotonic()
        with self._lock:
            link = self._links[server]
            header = link.header(kind, link.next_id)
            header.meta = dict(meta or {})
            reply = PendingReply(self, server, kind, header.id, encode(header, tensors, self._limits), now)
            link.start(reply)
            self._notify(link.receive(now))
        return reply

    def call(
        self,
        server: int,
        kind: str,
        meta: Mapping[str, Any] | None = None,
        tensors: Sequence[Tensor] = (),
        what: str = "",
    ) -> Reply:
        """Send a request and wait for the reply."""
        return self.start(server, kind, meta, tensors).wait(what)

    def close(self) -> None:
        """Close all connections; pending requests raise RpcError. A second call does nothing."""
        is_forked = os.getpid() != self._pid  # a forked child does not close its parent's connections
        if self._is_closed or is_forked:
            return
        self._is_closed = True
        self._heartbeat.stop()
        with self._lock:
            for link in self._links:
                link.end_all(
                    RpcError("the client was closed before the reply arrived; close it after the last wait")
                )
            self._notify(True)
            while self._is_polled:
                self._completed.wait(0.1)
            for link in self._links:
                link.close()
            os.close(self._wake)
        self._context.term()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- waiting ---------------------------------------------------------------------------------------

    def wait_for(self, reply: PendingReply, what: str) -> None:
        """Return once the request has completed; log from time to time what the thread waits for."""
        self._check()
        began = time.monotonic()
        log_at = began + self._settings.notice_s
        with self._lock:
            reply.what = what
            link = self._links[reply.server]
            while not reply.is_over:
                left = reply.last_seen + self._settings.deadline_s - time.monotonic()
                self._sleep(min(_POLL_S, max(left, 0.01)))
                now = time.monotonic()
                if now >= log_at and not reply.is_over:
                    self._log_wait(reply, link, now)
                    log_at = now + self._settings.notice_s
            self._completed.notify()  # another waiting thread takes over the polling
        counters.exposed_ns += int(1e9 * (time.monotonic() - began))

    def receive(self, reply: PendingReply) -> None:
        """Process the messages that have arrived."""
        self._check()
        with self._lock:
            self._notify(self._links[reply.server].receive(time.monotonic()))

    def cancel(self, reply: PendingReply) -> None:
        """Complete a request without its reply."""
        with self._lock:
            if not reply.is_over and not self._is_closed:
                self._links[reply.server].cancel(reply)
                self._notify(True)

    def _sleep(self, timeout_s: float) -> None:
        """Wait for messages, without the lock: poll if no other thread does, else until that thread notifies."""
        if self._is_polled:
            self._completed.wait(timeout_s)
            return
        self._is_polled = True
        self._lock.release()
        try:
            ready = self._poller.poll(timeout_s * 1000)
        finally:
            self._lock.acquire()
            self._is_polled = False
        now = time.monotonic()
        readable = [descriptor for descriptor, _ in ready]
        links = [
            self._by_descriptor[descriptor] for descriptor in readable if descriptor in self._by_descriptor
        ]
        if self._wake in readable:
            os.eventfd_read(self._wake)
        if self._is_closed:
            self._completed.notify_all()
        elif links and len(links) == len(readable):
            for link in links:
                self._notify(link.receive(now))
        else:  # a timeout, an event of a connection, or another thread's wake-up
            self._poll_links(now)

    def _poll_links(self, now: float) -> None:
        for link in self._links:
            self._notify(link.poll(now))

    def _notify(self, has_completed: bool) -> None:
        """Wake the waiting threads if requests have completed."""
        if has_completed:
            self._completed.notify_all()
            if self._is_polled:
                os.eventfd_write(self._wake, 1)

    def _log_wait(self, reply: PendingReply, link: ServerLink, now: float) -> None:
        waited_s = now - reply.last_seen
        if reply.status and waited_s < self._settings.notice_s:
            logger.log(NOTICE, "server %s %s (%s)", link.endpoint, reply.status, reply.what)
            return
        logger.warning(
            "server %s has not replied for %.0f s; retrying until %.0f s (%s)",
            link.endpoint, waited_s, self._settings.deadline_s, reply.what,
        )  # fmt: skip

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ProgramError(
                f"a client of process {self._pid} is used in its forked child {os.getpid()}, which cannot share its "
                "connections; create a Client in each process, or start processes with spawn"
            )
        if self._is_closed:
            raise ProgramError("this client is closed; create a new one")

    # --- callbacks of the heartbeat thread -------------------------------------------------------------

    def _make_header(self, server: int) -> Header:
        with self._lock:
            return self._links[server].header("heartbeat", 0)

    def _on_heartbeat(self, server: int, header: Header) -> None:
        with self._lock:
            self._links[server].last_seen = time.monotonic()
            self._links[server].note_incarnation(header.server)

    def _tick(self) -> None:
        with self._lock:
            self._poll_links(time.monotonic())


def wait_for_servers(endpoints: Sequence[str]) -> None:
    """Return when all servers reply; raises DeadlineError for the first that does not, after the RPC deadline."""
    with Client(endpoints, "a trainer that waits for the servers", -1, RpcSettings.from_env()) as client:
        pings = [client.start(server, "ping") for server in range(len(endpoints))]
        for reply in pings:
            reply.wait("first reply")
