"""The RPC server: receives requests, runs each one once in a thread pool, and sends the replies.

    serve(), one thread          thread pools: send, get, prefetch
    ──────────────────           ─────────────────────────────────
    receive, check      ──────▶  handler(request)
    duplicate? ──▶ reply again       │
    heartbeats, timeouts             └─▶ request.reply(…) sends from the thread that calls it

One lock guards the socket and the dedup table. The loop waits for the socket's file descriptor, not in ZeroMQ, so that
other threads can send meanwhile. The descriptor is edge-triggered; a thread that resets it by sending wakes the loop.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import select
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import zmq
from torch import Tensor
from zmq.utils.monitor import parse_monitor_message

from argosy.engine.errors import ArgosyError, BadMessage, ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps.rpc import sockets
from argosy.engine.ps.rpc.dedup import DedupTable, Entry
from argosy.engine.ps.rpc.request import Handler, Request
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.rpc.wire import VERSION, Frames, Header, Limits, WireMessage, decode, encode


class Pool:
    """A queue and up to `size` threads; a task costs a tenth of what it costs with `concurrent.futures`."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._lock = threading.Lock()

    def run(self, task: Callable[[], None]) -> None:
        """Queue a task, which must not raise."""
        with self._lock:
            # `_free` is negative while tasks are queued.
            self._free -= 1
            if self._free < 0 and len(self._threads) < self._size:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        self._tasks.put(task)

    def close(self, timeout_s: float) -> bool:
        """Run the queued tasks and end the threads; False if some still run after the timeout."""
        for _ in self._threads:
            self._tasks.put(None)
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it refers to a request's tensors; the next task may come much later
            with self._lock:
                self._free += 1


__all__ = ["Handler", "Request", "RpcServer"]
_END_S = 5.0
"""How long handlers may continue after `stop`."""
_LINGER_MS = 2000
"""How long sending the last replies may take."""
_AT_ONCE = 64
"""Messages received per iteration of the loop."""
_RESERVED = frozenset({"heartbeat", "query"})
_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_RESERVED_DESCRIPTORS = 64
"""Reserved for files: a connection whose descriptor is closer to the process's limit is closed."""


class RpcServer:
    """The transport of one server: a ROUTER socket, thread pools for handlers, and the dedup table."""

    def __init__(
        self,
        endpoint: str,
        settings: RpcSettings,
        handlers: Mapping[str, Handler],
        on_unresponsive: Callable[[int], None],
    ) -> None:
        if reserved := _RESERVED & handlers.keys():
            raise ConfigError(
                f"handlers for {', '.join(reserved)}: reserved for the transport; use other names"
            )
        self.incarnation = uuid.uuid4().hex
        self.is_stopped = False
        self._settings, self._handlers, self._on_unresponsive = settings, dict(handlers), on_unresponsive
        self._limits = Limits(settings.max_message_bytes)
        self._dedup = DedupTable()
        self._lock = threading.RLock()  # a signal handler may call stop() while this thread holds it
        self._kinds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._pools: dict[str, Pool] = {
            "send": Pool("ps-send", settings.send_threads),
            "get": Pool("ps-get", settings.get_threads),
            "prefetch": Pool("ps-prefetch", settings.prefetch_threads),
        }
        self._unresponsive_threads: list[threading.Thread] = []
        self._thread = 0
        self._is_closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            # Bind the ZAP handler before the public socket, so that no connection is accepted unauthenticated.
            self._zap_socket = self._context.socket(zmq.REP)
            self._zap_socket.bind(sockets.ZAP_ENDPOINT)
            self._socket = self._context.socket(zmq.ROUTER)
            sockets.tune(self._socket, settings)
            self._socket.linger = _LINGER_MS
            sockets.guard_server(self._socket, settings)
            self._events = self._socket.get_monitor_socket(_FAILURES | zmq.EVENT_ACCEPTED)
            self._most_descriptors = sockets.descriptor_limit() - _RESERVED_DESCRIPTORS
            self.endpoint = sockets.bind(self._socket, endpoint, settings)
        except BaseException:
            self._close()
            raise

    def serve(self) -> None:
        """Serve in this thread until `stop`; then finish the requests that have been received, and close."""
        with self._lock:
            if self._is_closed:  # stopped before it began
                return
            self._thread = threading.get_ident()
        socket, *auth_descriptors = map(sockets.descriptor, (self._socket, self._zap_socket, self._events))
        descriptors = select.poll()
        for descriptor in (socket, *auth_descriptors, self._wake):
            descriptors.register(descriptor, select.POLLIN)
        self._handle_zap()  # a descriptor becomes readable only after its socket was read once
        period = min(0.5, self._settings.heartbeat_timeout_s / 4)
        due, is_more = time.monotonic() + period, False
        try:
            while not self.is_stopped:
                wait_s = 0.0 if is_more else max(0.0, due - time.monotonic())
                ready = [descriptor for descriptor, _ in descriptors.poll(wait_s * 1000)]
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                if not {*auth_descriptors}.isdisjoint(ready):
                    self._handle_zap()
                is_more = self._receive_some()
                now = time.monotonic()
                if now >= due:
                    self._tick(now, late_s=now - due)
                    due = now + period
        finally:
            self.is_stopped = True
            self._end()

    def stop(self) -> None:
        """Make `serve` return; callable from any thread."""
        with self._lock:
            self.is_stopped = True
            if not self._thread:
                self._close()
            elif not self._is_closed:
                os.eventfd_write(self._wake, 1)

    def alive(self) -> dict[int, float]:
        """Seconds since the last message of each trainer."""
        now = time.monotonic()
        with self._lock:
            return {trainer: now - last_seen for trainer, last_seen in self._dedup.trainers.items()}

    def counters(self) -> dict[str, Any]:
        """Counters since the start; `requests` by kind."""
        names = ("repeated", "rejected", "malformed", "rejected_connections", "bytes_in", "bytes_out")
        with self._lock:
            return {"requests": dict(self._kinds), **{name: self._counts[name] for name in names}}

    # --- receiving: only the thread that serves --------------------------------------------------------

    def _receive_some(self) -> bool:
        """Receive a limited number of messages; True if there may be more."""
        for _ in range(_AT_ONCE):
            with self._lock:
                if not sockets.is_readable(self._socket):
                    return False
                route = self._socket.recv()
                frames = [self._socket.recv(copy=False)]
                while frames[-1].more:
                    frames.append(self._socket.recv(copy=False))
                self._counts["bytes_in"] += sum(map(len, frames))
            try:
                self._handle(route, decode(frames, self._limits))
            except BadMessage as e:
                self._note_malformed(route, e)
        return True

    def _handle(self, route: bytes, message: WireMessage) -> None:
        header = message.header
        handler = self._handlers.get(header.kind)
        with self._lock:
            peer = self._dedup.note_message(header, time.monotonic())
            if header.kind == "heartbeat":
                self._send(route, encode(self._header("heartbeat", header, {"counts": dict(self._counts)})))
                return
            if header.id < peer.acked_below:  # a late duplicate: the client has the reply
                self._counts["repeated"] += 1
                return
            entry = peer.entries.get(header.id)
            if entry is not None and not entry.may_run_again:
                self._counts["repeated"] += 1
                entry.route = route
                if entry.reply is not None:
                    self._send(route, entry.reply)
                return
            if header.kind == "query":
                self._send(route, encode(self._header("not_found", header, {})))
                return
            is_repeated = entry is not None
            entry = peer.entries[header.id] = Entry(header.id, route)
            self._kinds[header.kind if handler else "unknown"] += 1
        request = Request(self, message, entry, handler is not None and handler.repeatable, is_repeated)
        if handler is None:
            request.reject(
                f"unknown request kind {header.kind!r} (known: {', '.join(self._handlers)}); "
                "use the same Argosy in all processes"
            )
        elif handler.pool == "io":
            self._run(handler, request)
        else:
            self._pools[handler.pool].run(lambda: self._run(handler, request))

    def _run(self, handler: Handler, request: Request) -> None:
        try:
            handler.function(request)
        except ArgosyError as e:
            self._fail(request, str(e))
        except Exception as e:
            logger.exception("%s of %s failed", request.kind, request.who)
            self._fail(request, f"{type(e).__name__}: {e}")

    def _fail(self, request: Request, text: str) -> None:
        if not request.reject_if_pending(text):
            logger.error("%s of %s failed after its reply: %s", request.kind, request.who, text)

    def _note_malformed(self, route: bytes, error: BadMessage) -> None:
        with self._lock:
            self._counts["malformed"] += 1
            count = self._counts["malformed"]
            if isinstance(
                error.header, Header
            ):  # so that a process of another version gets an error, not a timeout
                self._send(route, encode(self._header("reject", error.header, {"text": str(error)})))
        if count % 100 == 1:
            logger.warning("rejected malformed message number %d: %s", count, error)

    def _handle_zap(self) -> None:
        """Authenticate new connections (ZAP), and count failed handshakes."""
        while sockets.is_readable(self._zap_socket):
            sockets.handle_zap_request(self._zap_socket, self._settings)
        while sockets.is_readable(self._events):
            event = parse_monitor_message(self._events.recv_multipart())
            if event["event"] != zmq.EVENT_ACCEPTED:
                is_token = event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH
                self._note_rejected("wrong token" if is_token else "malformed handshake")
            elif event["value"] >= self._most_descriptors:
                sockets.end_connection(event["value"])
                self._note_rejected("too many connections; raise the limit of open files (ulimit -n)")

    def _note_rejected(self, why: str) -> None:
        with self._lock:
            self._counts["rejected_connections"] += 1
            count = self._counts["rejected_connections"]
        if count % 100 == 1:
            logger.warning("%s: rejected connection number %d: %s", self.endpoint, count, why)

    def _tick(self, now: float, late_s: float) -> None:
        with self._lock:
            if late_s > 1:  # this process was stopped (SIGSTOP), or the machine was suspended
                self._dedup.extend_deadlines(late_s)
            unresponsive = self._dedup.newly_unresponsive(now, self._settings.heartbeat_timeout_s)
            # Not before the client's deadline: it may still query a stored reply.
            self._dedup.evict(now, self._settings.deadline_s + self._settings.heartbeat_timeout_s)
        self._unresponsive_threads = [thread for thread in self._unresponsive_threads if thread.is_alive()]
        for trainer in unresponsive:
            self._unresponsive_threads.append(
                threading.Thread(target=self._report_unresponsive, args=(trainer,), daemon=True)
            )
            self._unresponsive_threads[-1].start()

    def _report_unresponsive(self, trainer: int) -> None:
        try:
            self._on_unresponsive(trainer)
        except Exception:
            logger.exception("handling of unresponsive trainer %d failed", trainer)

    # --- sending: any thread ---------------------------------------------------------------------------

    def _header(self, kind: str, to: Header | Request, meta: dict[str, Any]) -> Header:
        return Header(VERSION, kind, to.id, to.client, meta=meta, server=self.incarnation)

    def frames(self, kind: str, to: Request, meta: dict[str, Any], tensors: Sequence[Tensor] = ()) -> Frames:
        """Encode a message about this request."""
        return encode(self._header(kind, to, meta), tensors, self._limits)

    def finish(
        self, entry: Entry, frames: Frames, *, keep: bool, rejected: bool = False, if_pending: bool = False
    ) -> bool:
        """Send the reply to a request; see `Responder`."""
        with self._lock:
            if entry.is_done and if_pending:
                return False
            if entry.is_done:
                raise ProgramError(
                    "a request was replied to twice; a handler must reply to it or reject it once"
                )
            entry.is_done = True
            self._counts["rejected"] += rejected
            if keep:
                entry.reply = frames
            self._send(entry.route, frames)
            return True

    def send_progress(self, entry: Entry, frames: Frames) -> None:
        """Send a progress message about a pending request."""
        with self._lock:
            if not entry.is_done:
                self._send(entry.route, frames)

    def _send(self, route: bytes, frames: Frames) -> None:
        if self._is_closed:
            logger.info("dropping a reply: the server has stopped")
            return
        self._counts["bytes_out"] += sum(map(len, frames))
        self._socket.send(route, zmq.SNDMORE)
        sockets.send(self._socket, frames)
        if threading.get_ident() != self._thread and sockets.is_readable(self._socket):
            os.eventfd_write(self._wake, 1)

    # --- the end ---------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Run the queued requests, reject the deferred ones, and close."""
        until = time.monotonic() + _END_S
        for name, pool in self._pools.items():
            if not pool.close(max(0.1, until - time.monotonic())):
                logger.warning(
                    "handlers of pool %s still run %g s after the server was stopped", name, _END_S
                )
        for thread in self._unresponsive_threads:
            thread.join(max(0.1, until - time.monotonic()))
        with self._lock:
            for client, peer in self._dedup.peers.items():
                for entry in peer.entries.values():
                    if not entry.is_done:
                        entry.is_done = True
                        text = f"server {self.endpoint} stopped before it could reply; see its serverlog"
                        header = Header(
                            VERSION,
                            "reject",
                            entry.id,
                            client,
                            meta={"text": text},
                            server=self.incarnation,
                        )
                        self._send(entry.route, encode(header))
            self._close()
            rejected, malformed = self._counts["rejected_connections"], self._counts["malformed"]
        if rejected > 1 or malformed > 1:  # the first and every hundredth were logged
            logger.warning(
                "%s: rejected %d connections and %d malformed messages", self.endpoint, rejected, malformed
            )

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for name in ("_zap_socket", "_events"):
                if hasattr(self, name):
                    getattr(self, name).close(linger=0)
            if hasattr(self, "_socket"):
                self._socket.disable_monitor()
                self._socket.close()
            self._context.term()
            os.close(self._wake)
