"""The trainer's side: starts requests to any of the servers, and waits for their answers.

    start ──▶ handed to ZeroMQ, whose own thread sends
    wait  ──▶ one of those who wait polls for all; the others sleep until it has news

One lock guards the sockets. It is not held while polling, which only looks at file descriptors: `start` never waits
for a thread that waits. A descriptor tells of news once, so whoever uses a socket takes all that has come.
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
from argosy.engine.ps.rpc import address
from argosy.engine.ps.rpc.heart import Heart
from argosy.engine.ps.rpc.link import Link
from argosy.engine.ps.rpc.reply import Answer, Reply
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.rpc.wire import VERSION, Header, Limits, encode

__all__ = ["Answer", "Client", "Health", "Reply"]
_TEND_S = 0.5
"""Who waits looks after clocks and connections this often."""


@dataclass(frozen=True)
class Health:
    """What is known of one server."""

    endpoint: str
    life: str
    """Random, made when the server starts; empty before its first word."""
    heard_s: float
    """Seconds since its last sign of life."""
    counters: dict[str, int]
    """The server's, as of its last heartbeat."""


class Client:
    """A process's connections to all servers; can be used by several threads."""

    def __init__(
        self, endpoints: Sequence[str], who: str, trainer: int = -1, settings: Settings | None = None
    ) -> None:
        if not endpoints:
            raise ConfigError("a client without servers; name at least one endpoint")
        if len(who) > 100 or trainer < -1:
            raise ConfigError(
                f"client {who[:100]!r}, trainer {trainer}: use a short name and a number from 0 on, or -1"
            )
        for endpoint in endpoints:
            address.split(endpoint)
        self._settings = settings or Settings.from_env()
        self._limits = Limits(self._settings.max_message_bytes)
        self.life = uuid.uuid4().hex
        self._pid, self._is_closed = os.getpid(), False
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._is_polled = False
        """Whether a thread polls; it does not hold the lock."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        me = Header(VERSION, "", 0, self.life, who, trainer)
        now = time.monotonic()
        self._links = [Link(self._context, endpoint, self._settings, me, now) for endpoint in endpoints]
        self._counters: list[dict[str, int]] = [{} for _ in endpoints]
        self._by_descriptor = {link.descriptors[0]: link for link in self._links}
        self._poll = select.poll()
        for descriptor in [self._wake, *(d for link in self._links for d in link.descriptors)]:
            self._poll.register(descriptor, select.POLLIN)
        self._heart = Heart(self._context, endpoints, self._settings, self._beat, self._heard, self._tend)
        self._heart.start()

    def start(
        self, server: int, kind: str, meta: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()
    ) -> Reply:
        """Send a request and return at once; the tensors must not change until it is answered."""
        self._check()
        now = time.monotonic()
        with self._lock:
            link = self._links[server]
            header = link.header(kind, link.next_id)
            header.meta = dict(meta or {})
            reply = Reply(self, server, kind, header.id, encode(header, tensors, self._limits), now)
            link.start(reply)
            self._spread(link.take(now))
        return reply

    def call(
        self,
        server: int,
        kind: str,
        meta: Mapping[str, Any] | None = None,
        tensors: Sequence[Tensor] = (),
        what: str = "",
    ) -> Answer:
        """Send a request and wait for the answer."""
        return self.start(server, kind, meta, tensors).wait(what)

    def health(self) -> list[Health]:
        """What is known of each server."""
        now = time.monotonic()
        with self._lock:
            return [
                Health(link.endpoint, link.life, now - link.heard, counters)
                for link, counters in zip(self._links, self._counters, strict=True)
            ]

    def close(self) -> None:
        """End all connections; who still waits gets an error. A second call does nothing."""
        if (
            self._is_closed or os.getpid() != self._pid
        ):  # a forked child does not end its parent's connections
            return
        self._is_closed = True
        self._heart.stop()
        with self._lock:
            for link in self._links:
                link.end_all(
                    RpcError("the client was closed before the answer came; close it after the last wait")
                )
            self._spread(True)
            while self._is_polled:
                self._news.wait(0.1)
            for link in self._links:
                link.close()
            os.close(self._wake)
        self._context.term()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- waiting ---------------------------------------------------------------------------------------

    def wait_for(self, reply: Reply, what: str) -> None:
        """Return once the reply is over; say from time to time what is waited for."""
        self._check()
        line_at = time.monotonic() + self._settings.notice_s
        with self._lock:
            reply.what = what
            link = self._links[reply.server]
            while not reply.is_over:
                left = reply.heard + self._settings.deadline_s - time.monotonic()
                self._sleep(min(_TEND_S, max(left, 0.01)))
                now = time.monotonic()
                if now >= line_at and not reply.is_over:
                    self._say(reply, link, now)
                    line_at = now + self._settings.notice_s
            self._news.notify()  # somebody else may have to poll now

    def look_for(self, reply: Reply) -> None:
        """Take what has arrived."""
        self._check()
        with self._lock:
            self._spread(self._links[reply.server].take(time.monotonic()))

    def forget(self, reply: Reply) -> None:
        """End a request without its answer."""
        with self._lock:
            if not reply.is_over and not self._is_closed:
                self._links[reply.server].forget(reply)
                self._spread(True)

    def _sleep(self, timeout_s: float) -> None:
        """Wait for news: by polling if nobody does, else for who does. The lock is free meanwhile."""
        if self._is_polled:
            self._news.wait(timeout_s)
            return
        self._is_polled = True
        self._lock.release()
        try:
            ready = self._poll.poll(timeout_s * 1000)
        finally:
            self._lock.acquire()
            self._is_polled = False
        now = time.monotonic()
        found = [descriptor for descriptor, _ in ready]
        links = [self._by_descriptor[descriptor] for descriptor in found if descriptor in self._by_descriptor]
        if self._wake in found:
            os.eventfd_read(self._wake)
        if self._is_closed:
            self._news.notify_all()
        elif links and len(links) == len(found):
            for link in links:
                self._spread(link.take(now))
        else:  # time has passed, a connection has changed, or somebody woke us
            self._tend_all(now)

    def _tend_all(self, now: float) -> None:
        for link in self._links:
            self._spread(link.tend(now))

    def _spread(self, is_news: bool) -> None:
        """Wake those who wait, if requests are over."""
        if is_news:
            self._news.notify_all()
            if self._is_polled:
                os.eventfd_write(self._wake, 1)

    def _say(self, reply: Reply, link: Link, now: float) -> None:
        silent_s = now - reply.heard
        if reply.told and silent_s < self._settings.notice_s:
            logger.log(NOTICE, "server %s %s (%s)", link.endpoint, reply.told, reply.what)
            return
        logger.warning(
            "server %s does not answer since %.0f s; trying until %.0f s (%s)",
            link.endpoint, silent_s, self._settings.deadline_s, reply.what,
        )  # fmt: skip

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ProgramError(
                f"a client of process {self._pid} is used in its forked child {os.getpid()}, which cannot share its "
                "connections; make a Client in each process, or start processes with spawn"
            )
        if self._is_closed:
            raise ProgramError("this client was closed; make a new one")

    # --- what the heart calls, from its own thread -------------------------------------------------------

    def _beat(self, server: int) -> Header:
        with self._lock:
            return self._links[server].header("heartbeat", 0)

    def _heard(self, server: int, header: Header) -> None:
        with self._lock:
            self._links[server].heard = time.monotonic()
            self._links[server].note_life(header.server)
            self._counters[server] = header.meta.get("counts", {})

    def _tend(self) -> None:
        with self._lock:
            self._tend_all(time.monotonic())
