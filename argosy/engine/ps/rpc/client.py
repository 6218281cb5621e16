"""The RPC client: sends requests to any of the servers, and waits for their replies.

    start ──▶ handed to ZeroMQ, whose I/O thread sends
    wait  ──▶ one of the waiting threads polls for all; the others sleep until it notifies them

One lock guards the sockets. It is not held while polling, which only reads file descriptors: `start` never blocks on
a thread that waits. ZeroMQ's descriptor is edge-triggered, so a thread that uses a socket reads all that has arrived.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import select
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq
from torch import Tensor

from argosy.engine.errors import ConfigError, ProgramError, RpcError
from argosy.engine.log import NOTICE, logger
from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc.heartbeat import Heartbeat
from argosy.engine.ps.rpc.link import Link, PendingReply, Reply
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.rpc.wire import VERSION, Header, Limits, encode

__all__ = ["Client", "Health", "PendingReply", "Reply"]
_POLL_S = 0.5
"""A waiting thread checks deadlines and connections this often."""


@dataclass(frozen=True)
class Health:
    """The state of one server, as this client knows it."""

    endpoint: str
    incarnation: str
    """A random id, new for each start of the server; empty before its first message."""
    last_seen_s: float
    """Seconds since its last message."""
    counters: dict[str, int]
    """The server's counters, as of its last heartbeat."""


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
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        me = Header(VERSION, "", 0, self.incarnation, who, trainer)
        now = time.monotonic()
        self._links = [Link(self._context, endpoint, self._settings, me, now) for endpoint in endpoints]
        self._counters: list[dict[str, int]] = [{} for _ in endpoints]
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

    def health(self) -> list[Health]:
        """The state of each server."""
        now = time.monotonic()
        with self._lock:
            return [
                Health(link.endpoint, link.incarnation, now - link.last_seen, counters)
                for link, counters in zip(self._links, self._counters, strict=True)
            ]

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
        log_at = time.monotonic() + self._settings.notice_s
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

    def _log_wait(self, reply: PendingReply, link: Link, now: float) -> None:
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
            self._counters[server] = header.meta.get("counts", {})

    def _tick(self) -> None:
        with self._lock:
            self._poll_links(time.monotonic())


def wait_for_servers(endpoints: Sequence[str]) -> None:
    """Return when all servers reply; raises DeadlineError for the first that does not, after the RPC deadline."""
    with Client(endpoints, "a trainer that waits", -1, RpcSettings.from_env()) as client:
        asked = [client.start(server, "ping") for server in range(len(endpoints))]
        for reply in asked:
            reply.wait("the first word")
