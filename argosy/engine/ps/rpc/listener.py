"""The server's side: takes requests, runs each one once in a thread pool, and sends the answers.

    serve(), one thread          thread pools: send, get, prefetch
    ──────────────────           ─────────────────────────────────
    receive, check      ──────▶  handler(request)
    known? ──▶ answer again          │
    heartbeats, silence              └─▶ request.answer(…) sends from whichever thread it is called in

One lock guards the socket and the ledger. The loop waits for the socket's file descriptor, not in ZeroMQ, so that
others can send meanwhile. That descriptor tells of news once; who takes them off it by sending has to wake the loop.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import select
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from torch import Tensor
from zmq.utils.monitor import parse_monitor_message

from argosy.engine.errors import ArgosyError, BadMessage, ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps.rpc import address, security, tcp
from argosy.engine.ps.rpc.ledger import Entry, Ledger
from argosy.engine.ps.rpc.pool import Pool
from argosy.engine.ps.rpc.request import Handler, Request
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.rpc.wire import VERSION, Frames, Header, Limits, Message, decode, encode

__all__ = ["Handler", "Listener", "Request"]
_END_S = 5.0
"""How long handlers may still work after `stop`."""
_LINGER_MS = 2000
"""How long the last answers may take to be sent."""
_AT_ONCE = 64
"""So many messages are taken before the loop looks at the rest of its duties."""
_RESERVED = frozenset({"heartbeat", "again"})
_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Listener:
    """One server's ear and mouth."""

    def __init__(
        self,
        endpoint: str,
        settings: Settings,
        handlers: Mapping[str, Handler],
        on_silent: Callable[[int], None],
    ) -> None:
        if taken := _RESERVED & handlers.keys():
            raise ConfigError(f"handlers for {', '.join(taken)}: the transport has its own; use other names")
        self.life = uuid.uuid4().hex
        self.is_stopped = False
        self._settings, self._handlers, self._on_silent = settings, dict(handlers), on_silent
        self._limits = Limits(settings.max_message_bytes)
        self._ledger = Ledger()
        self._lock = threading.RLock()  # a signal handler may call stop() while this thread holds it
        self._kinds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._pools: dict[str, Pool] = {
            "send": Pool("ps-send", settings.send_threads),
            "get": Pool("ps-get", settings.get_threads),
            "prefetch": Pool("ps-prefetch", settings.prefetch_threads),
        }
        self._silences: list[threading.Thread] = []
        self._thread = 0
        self._is_closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            # The gate stands before the door opens.
            self._gate = self._context.socket(zmq.REP)
            self._gate.bind(security.ZAP_ENDPOINT)
            self._socket = self._context.socket(zmq.ROUTER)
            tcp.tune(self._socket, settings)
            self._socket.linger = _LINGER_MS
            security.guard_server(self._socket, settings)
            self._events = self._socket.get_monitor_socket(_FAILURES)
            self.endpoint = address.bind(self._socket, endpoint, settings)
        except BaseException:
            self._close()
            raise

    def serve(self) -> None:
        """Serve in this thread until `stop`; then finish what has been received, and close."""
        with self._lock:
            if self._is_closed:  # stopped before it began
                return
            self._thread = threading.get_ident()
        socket, *doors = map(tcp.descriptor, (self._socket, self._gate, self._events))
        descriptors = select.poll()
        for descriptor in (socket, *doors, self._wake):
            descriptors.register(descriptor, select.POLLIN)
        period = min(0.5, self._settings.silent_s / 4)
        due, is_more = time.monotonic() + period, False
        try:
            while not self.is_stopped:
                wait_s = 0.0 if is_more else max(0.0, due - time.monotonic())
                ready = [found for found, _ in descriptors.poll(wait_s * 1000)]
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                if not {*doors}.isdisjoint(ready):
                    self._open_gate()
                is_more = self._receive_some()
                now = time.monotonic()
                if now >= due:
                    self._look_round(now, late_s=now - due)
                    due = now + period
        finally:
            self.is_stopped = True
            self._end()

    def stop(self) -> None:
        """Let `serve` return; callable from any thread."""
        with self._lock:
            self.is_stopped = True
            if not self._thread:
                self._close()
            elif not self._is_closed:
                os.eventfd_write(self._wake, 1)

    def alive(self) -> dict[int, float]:
        """Seconds since each trainer was heard."""
        now = time.monotonic()
        with self._lock:
            return {trainer: now - heard for trainer, heard in self._ledger.trainers.items()}

    def counters(self) -> dict[str, Any]:
        """What has happened since the start; `requests` by kind."""
        names = ("repeated", "refused", "bad_frames", "refused_connections", "bytes_in", "bytes_out")
        with self._lock:
            return {"requests": dict(self._kinds), **{name: self._counts[name] for name in names}}

    # --- receiving: only the thread that serves --------------------------------------------------------

    def _receive_some(self) -> bool:
        """Take what has come, up to a number; True if there may be more."""
        for _ in range(_AT_ONCE):
            with self._lock:
                if not tcp.is_readable(self._socket):
                    return False
                route = self._socket.recv()
                frames = [self._socket.recv(copy=False)]
                while frames[-1].more:
                    frames.append(self._socket.recv(copy=False))
                self._counts["bytes_in"] += sum(map(len, frames))
            try:
                self._take(route, decode(frames, self._limits))
            except BadMessage as e:
                self._note_bad(route, e)
        return True

    def _take(self, route: bytes, message: Message) -> None:
        header = message.header
        handler = self._handlers.get(header.kind)
        with self._lock:
            peer = self._ledger.hear(header, time.monotonic())
            if header.kind == "heartbeat":
                self._send(route, encode(self._header("heartbeat", header, {"counts": dict(self._counts)})))
                return
            if header.id < peer.settled:  # a copy that was late: the client has its answer
                self._counts["repeated"] += 1
                return
            entry = peer.entries.get(header.id)
            if entry is not None and not entry.may_run_again:
                self._counts["repeated"] += 1
                entry.route = route
                if entry.answer is not None:
                    self._send(route, entry.answer)
                return
            if header.kind == "again":
                self._send(route, encode(self._header("unknown", header, {})))
                return
            is_repeated = entry is not None
            entry = peer.entries[header.id] = Entry(header.id, route)
            self._kinds[header.kind if handler else "unknown"] += 1
        request = Request(self, message, entry, handler is not None and handler.repeatable, is_repeated)
        if handler is None:
            request.refuse(
                f"there is no kind of request {header.kind!r}; there are {', '.join(self._handlers)}"
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
        if request.is_answered:
            logger.error("%s of %s failed after its answer: %s", request.kind, request.who, text)
        else:
            request.refuse(text)

    def _note_bad(self, route: bytes, error: BadMessage) -> None:
        with self._lock:
            self._counts["bad_frames"] += 1
            count = self._counts["bad_frames"]
            if isinstance(error.header, Header):  # so that an Argosy of another version does not wait in vain
                self._send(route, encode(self._header("refuse", error.header, {"text": str(error)})))
        if count % 100 == 1:
            logger.warning("refused message number %d that makes no sense: %s", count, error)

    def _open_gate(self) -> None:
        """Answer ZeroMQ's questions about new connections, and count those that failed."""
        while tcp.is_readable(self._gate):
            security.answer_zap(self._gate, self._settings)
        while tcp.is_readable(self._events):
            event = parse_monitor_message(self._events.recv_multipart())
            with self._lock:
                self._counts["refused_connections"] += 1
                count = self._counts["refused_connections"]
            if count % 100 == 1:
                why = (
                    "wrong token"
                    if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH
                    else "no handshake of ours"
                )
                logger.warning("%s: refused connection number %d: %s", self.endpoint, count, why)

    def _look_round(self, now: float, late_s: float) -> None:
        with self._lock:
            if late_s > 1:  # we were stopped, or the machine was
                self._ledger.excuse(late_s)
            silent = self._ledger.fallen_silent(now, self._settings.silent_s)
            # Not before the client has given up: an answer that it may still ask for must be there.
            self._ledger.forget(now, self._settings.deadline_s + self._settings.silent_s)
        self._silences = [thread for thread in self._silences if thread.is_alive()]
        for trainer in silent:
            self._silences.append(threading.Thread(target=self._tell_silent, args=(trainer,), daemon=True))
            self._silences[-1].start()

    def _tell_silent(self, trainer: int) -> None:
        try:
            self._on_silent(trainer)
        except Exception:
            logger.exception("what is to be done when trainer %d is silent failed", trainer)

    # --- sending: any thread ---------------------------------------------------------------------------

    def _header(self, kind: str, to: Header | Request, meta: dict[str, Any]) -> Header:
        return Header(VERSION, kind, to.id, to.client, meta=meta, server=self.life)

    def frames(self, kind: str, to: Request, meta: dict[str, Any], tensors: Sequence[Tensor] = ()) -> Frames:
        """An answer to this request, ready to be sent."""
        return encode(self._header(kind, to, meta), tensors, self._limits)

    def finish(self, entry: Entry, frames: Frames, *, keep: bool, refused: bool = False) -> None:
        """Send the one answer to a request, and keep it for a client that does not get it."""
        with self._lock:
            if entry.is_done:
                raise ProgramError("a request was answered twice; a handler must answer or refuse it once")
            entry.is_done = True
            self._counts["refused"] += refused
            if keep:
                entry.answer = frames
            self._send(entry.route, frames)

    def tell(self, entry: Entry, frames: Frames) -> None:
        """Send word about a request that is not answered yet."""
        with self._lock:
            if not entry.is_done:
                self._send(entry.route, frames)

    def _send(self, route: bytes, frames: Frames) -> None:
        if self._is_closed:
            logger.info("an answer came after the server had ended; it is dropped")
            return
        self._counts["bytes_out"] += sum(map(len, frames))
        self._socket.send(route, zmq.SNDMORE)
        tcp.send(self._socket, frames)
        if threading.get_ident() != self._thread and tcp.is_readable(self._socket):
            os.eventfd_write(self._wake, 1)

    # --- the end ---------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Work off the queues, refuse what waits for something that will not come, and close."""
        until = time.monotonic() + _END_S
        for name, pool in self._pools.items():
            if not pool.close(max(0.1, until - time.monotonic())):
                logger.warning("handlers of pool %s still work %g s after the server's end", name, _END_S)
        for thread in self._silences:
            thread.join(max(0.1, until - time.monotonic()))
        with self._lock:
            for life, peer in self._ledger.peers.items():
                for entry in peer.entries.values():
                    if not entry.is_done:
                        entry.is_done = True
                        text = f"server {self.endpoint} has ended before it could answer; see its serverlog"
                        header = Header(
                            VERSION, "refuse", entry.id, life, meta={"text": text}, server=self.life
                        )
                        self._send(entry.route, encode(header))
            self._close()
            refused, bad = self._counts["refused_connections"], self._counts["bad_frames"]
        if refused > 1 or bad > 1:  # of which the first was logged, and every hundredth
            logger.warning(
                "%s: refused %d connections and %d messages that make no sense", self.endpoint, refused, bad
            )

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for name in ("_gate", "_events"):
                if hasattr(self, name):
                    getattr(self, name).close(linger=0)
            if hasattr(self, "_socket"):
                self._socket.disable_monitor()
                self._socket.close()
            self._context.term()
            os.close(self._wake)
