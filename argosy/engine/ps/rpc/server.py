"""The RPC server: receives requests, runs each one once in a thread pool, and sends the replies.

    serve(), one thread          thread pools: send, get, prefetch
    ──────────────────           ─────────────────────────────────
    receive, check      ──────▶  handler(request)
    duplicate? ──▶ reply again       │
    heartbeats, timeouts             └─▶ request.reply(…) sends from the thread that calls it

A request is identified by (client, id). Its entry in the dedup table stays until the client's `acked_below` passes it:
the client then has the reply and does not send the request again.

One lock guards the socket and the dedup table. The loop waits for the socket's file descriptor, not in ZeroMQ, so that
other threads can send meanwhile. The descriptor is edge-triggered; a thread that resets it by sending wakes the loop.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

from torch import Tensor

from argosy.engine.errors import ArgosyError, BadMessage, ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps.rpc.request_meter import RequestMeter
from argosy.engine.ps.rpc.sockets import RpcSettings, ServerSocket
from argosy.engine.ps.rpc.wire import VERSION, Frames, Header, Limits, WireMessage, decode, encode

_END_S = 5.0
"""How long handlers may continue after `stop`."""
_AT_ONCE = 64
"""Messages received per iteration of the loop."""
_RESERVED = frozenset({"heartbeat", "query"})


@dataclass(slots=True)
class Entry:
    """One request: the route of its reply, and the reply."""

    id: int
    route: bytes
    """The connection that sent it last: an older one may be closed."""
    is_done: bool = False
    reply: Frames | None = None
    kind: str = ""
    arrived: float = 0.0
    nbytes: int = 0
    """Of the request; for its measurements."""

    @property
    def may_run_again(self) -> bool:
        """It was replied to, and the reply was not stored."""
        return self.is_done and self.reply is None


@dataclass(slots=True)
class ClientState:
    """One incarnation of a client."""

    last_seen: float
    acked_below: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    def discard_acked(self, acked_below: int) -> None:
        """Remove the replies that the client has."""
        if acked_below > self.acked_below:
            self.acked_below = acked_below
            # Ids arrive almost in order; one that arrived out of order is removed when it is the first.
            while self.entries and (first := next(iter(self.entries))) < acked_below:
                del self.entries[first]


class DedupTable:
    """The requests of each client, their replies, and when each client was last seen. The server's lock guards it."""

    def __init__(self) -> None:
        self.clients: dict[str, ClientState] = {}
        self.trainers: dict[int, float] = {}
        """When the last message of each trainer arrived."""
        self._unresponsive: set[int] = set()

    def note_message(self, header: Header, now: float) -> ClientState:
        """Note a message of a client."""
        state = self.clients.get(header.client)
        if state is None:
            state = self.clients[header.client] = ClientState(now)
        state.last_seen = now
        state.discard_acked(header.acked_below)
        if header.trainer >= 0:
            self.trainers[header.trainer] = now
            self._unresponsive.discard(header.trainer)
        return state

    def extend_deadlines(self, late_s: float) -> None:
        """The server itself was stopped for this long and could not receive: shift all times by it."""
        for state in self.clients.values():
            state.last_seen += late_s
        for trainer in self.trainers:
            self.trainers[trainer] += late_s

    def newly_unresponsive(self, now: float, timeout_s: float) -> list[int]:
        """The trainers whose last message is older than the timeout; each is returned once."""
        expired = {t for t, last_seen in self.trainers.items() if now - last_seen > timeout_s}
        new = expired - self._unresponsive
        self._unresponsive |= new
        return sorted(new)

    def evict(self, now: float, timeout_s: float) -> None:
        """Remove the clients whose last message is older than the timeout."""
        expired = [client for client, state in self.clients.items() if now - state.last_seen > timeout_s]
        for client in expired:
            del self.clients[client]


class Request:
    """One request of a client. Its handler replies to it or rejects it once, now or later, from any thread."""

    __slots__ = (
        "_entry",
        "_repeatable",
        "_server",
        "acked_below",
        "client",
        "id",
        "is_repeated",
        "kind",
        "meta",
        "tensors",
        "trainer",
        "who",
    )

    def __init__(
        self,
        server: "RpcServer",
        message: WireMessage,
        entry: Entry,
        repeatable: bool,
        is_repeated: bool = False,
    ) -> None:
        """`is_repeated`: it was replied to before, and the reply was lost."""
        header = message.header
        self.client, self.who, self.trainer = header.client, header.who, header.trainer
        self.id, self.kind, self.meta, self.tensors = header.id, header.kind, header.meta, message.tensors
        self.acked_below = header.acked_below
        """The client has the replies to all its requests below this number."""
        self.is_repeated = is_repeated
        self._server, self._entry, self._repeatable = server, entry, repeatable

    def reply(self, meta: Mapping[str, Any] | None = None, tensors: Sequence[Tensor] = ()) -> None:
        """Send the reply. The tensors are read while they are sent, and stored in case the reply is lost:

        they must not change afterwards, unless the handler is repeatable and its clients may see the change.
        """
        try:
            frames = self._server.frames("reply", self, dict(meta or {}), tensors)
        except ConfigError as e:
            self.reject(str(e))
            raise
        self._server.finish(self._entry, frames, keep=not self._repeatable)

    def reject(self, message: str) -> None:
        """Send an error instead of a reply."""
        frames = self._server.frames("reject", self, {"text": message[:100_000]})
        self._server.finish(self._entry, frames, keep=not self._repeatable, rejected=True)

    def reject_if_pending(self, message: str) -> bool:
        """Send an error, unless another thread has replied; False if it has."""
        frames = self._server.frames("reject", self, {"text": message[:100_000]})
        keep = not self._repeatable
        return self._server.finish(self._entry, frames, keep=keep, rejected=True, if_pending=True)

    def progress(self, text: str) -> None:
        """Report why the reply is late, which resets the client's deadline. No effect after the reply."""
        self._server.send_progress(self._entry, self._server.frames("progress", self, {"text": text}))

    @property
    def is_replied(self) -> bool:
        return self._entry.is_done


PoolName: TypeAlias = Literal["send", "get", "prefetch", "io"]


@dataclass(frozen=True)
class Handler:
    """How a server executes one kind of request."""

    pool: PoolName
    """The thread pool that runs it; io: the server's I/O thread, for handlers that never block."""
    function: Callable[[Request], None]
    """Replies to the request or defers it; an exception rejects the request."""
    repeatable: bool = False
    """Its replies are not stored: if one is lost, the function runs again."""


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

    @property
    def num_waiting(self) -> int:
        """Tasks that wait for a thread."""
        return max(0, -self._free)

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


class HandlerPools:
    """Runs handlers in their thread pools; an exception rejects the request."""

    def __init__(self, settings: RpcSettings, note_cpu: Callable[[str, int], None] | None = None) -> None:
        """`note_cpu(kind, ns)`: called after each handler with the processor time of its thread."""
        self._note_cpu = note_cpu
        self._pools: dict[str, Pool] = {
            "send": Pool("ps-send", settings.send_threads),
            "get": Pool("ps-get", settings.get_threads),
            "prefetch": Pool("ps-prefetch", settings.prefetch_threads),
        }

    def run(self, handler: Handler, request: Request) -> None:
        """Run a handler in its pool, or here if its pool is io."""
        if handler.pool == "io":
            self._run(handler, request)
        else:
            self._pools[handler.pool].run(lambda: self._run(handler, request))

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a thread."""
        return sum(pool.num_waiting for pool in self._pools.values())

    def close(self, until: float) -> None:
        """Run the queued requests and end the threads; logs a warning for those that still run at that time."""
        for name, pool in self._pools.items():
            if not pool.close(max(0.1, until - time.monotonic())):
                logger.warning(
                    "handlers of pool %s still run %g s after the server was stopped", name, _END_S
                )

    def _run(self, handler: Handler, request: Request) -> None:
        began = time.thread_time_ns()
        try:
            handler.function(request)
        except ArgosyError as e:
            self._reject(request, str(e))
        except Exception as e:
            logger.exception("%s of %s failed", request.kind, request.who)
            self._reject(request, f"{type(e).__name__}: {e}")
        if self._note_cpu is not None:
            self._note_cpu(request.kind, time.thread_time_ns() - began)

    def _reject(self, request: Request, text: str) -> None:
        if not request.reject_if_pending(text):
            logger.error("%s of %s failed after its reply: %s", request.kind, request.who, text)


class RpcServer:
    """Executes each request of the clients once: a socket, thread pools for handlers, and the dedup table."""

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
        self.meter: RequestMeter | None = None
        """Set before `serve` to measure the requests."""
        self._pools = HandlerPools(settings, self._note_cpu)
        self._unresponsive_threads: list[threading.Thread] = []
        self._socket = ServerSocket(endpoint, settings, self._lock, self._counts)
        self.endpoint = self._socket.endpoint

    def serve(self) -> None:
        """Serve in this thread until `stop`; then finish the requests that have been received, and close."""
        with self._lock:
            if self._socket.is_closed:  # stopped before it began
                return
            self._socket.begin()
        period = min(0.5, self._settings.heartbeat_timeout_s / 4)
        due, is_more = time.monotonic() + period, False
        try:
            while not self.is_stopped:
                self._socket.poll(0.0 if is_more else max(0.0, due - time.monotonic()))
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
            if self._socket.is_served:
                self._socket.wake()
            else:
                self._socket.close()

    def last_seen_s(self) -> dict[int, float]:
        """Seconds since the last message of each trainer."""
        now = time.monotonic()
        with self._lock:
            return {trainer: now - last_seen for trainer, last_seen in self._dedup.trainers.items()}

    def counters(self) -> dict[str, Any]:
        """Counters since the start; `requests` by kind."""
        names = ("repeated", "rejected", "malformed", "rejected_connections", "bytes_in", "bytes_out")
        with self._lock:
            return {"requests": dict(self._kinds), **{name: self._counts[name] for name in names}}

    def _note_cpu(self, kind: str, cpu_ns: int) -> None:
        if self.meter is not None:
            with self._lock:
                self.meter.add_cpu(kind, cpu_ns)

    def take_measurements(self) -> dict[str, Any]:
        """The requests since the last call, by kind, and how many wait for a thread now."""
        with self._lock:
            requests = {} if self.meter is None else self.meter.take()
        return {"requests": requests, "queue": self._pools.num_waiting}

    # --- receiving: only the thread that serves --------------------------------------------------------

    def _receive_some(self) -> bool:
        """Receive a limited number of messages; True if there may be more."""
        for _ in range(_AT_ONCE):
            with self._lock:
                received = self._socket.receive()
            if received is None:
                return False
            route, frames = received
            nbytes = sum(map(len, frames)) if self.meter is not None else 0
            try:
                self._handle(route, decode(frames, self._limits), nbytes)
            except BadMessage as e:
                self._note_malformed(route, e)
        return True

    def _handle(self, route: bytes, message: WireMessage, nbytes: int) -> None:
        header = message.header
        handler = self._handlers.get(header.kind)
        now = time.monotonic()
        with self._lock:
            state = self._dedup.note_message(header, now)
            if header.kind == "heartbeat":
                self._socket.send(route, encode(self._header("heartbeat", header, {})))
                return
            if header.id < state.acked_below:  # a late duplicate: the client has the reply
                self._counts["repeated"] += 1
                return
            entry = state.entries.get(header.id)
            if entry is not None and not entry.may_run_again:
                self._counts["repeated"] += 1
                entry.route = route
                if entry.reply is not None:
                    self._socket.send(route, entry.reply)
                return
            if header.kind == "query":
                self._socket.send(route, encode(self._header("not_found", header, {})))
                return
            is_repeated = entry is not None
            kind = header.kind if handler else "unknown"
            entry = state.entries[header.id] = Entry(header.id, route, kind=kind, arrived=now, nbytes=nbytes)
            self._kinds[kind] += 1
        request = Request(self, message, entry, handler is not None and handler.repeatable, is_repeated)
        if handler is None:
            request.reject(
                f"unknown request kind {header.kind!r} (known: {', '.join(self._handlers)}); "
                "use the same Argosy in all processes"
            )
        else:
            self._pools.run(handler, request)

    def _note_malformed(self, route: bytes, error: BadMessage) -> None:
        with self._lock:
            self._counts["malformed"] += 1
            count = self._counts["malformed"]
            # So that a process of another version gets an error, not a timeout.
            if isinstance(error.header, Header):
                self._socket.send(route, self._rejection(error.header.id, error.header.client, str(error)))
        if count % 100 == 1:
            logger.warning("rejected malformed message number %d: %s", count, error)

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

    def _rejection(self, id_: int, client: str, text: str) -> Frames:
        return encode(Header(VERSION, "reject", id_, client, meta={"text": text}, server=self.incarnation))

    def frames(self, kind: str, to: Request, meta: dict[str, Any], tensors: Sequence[Tensor] = ()) -> Frames:
        """Encode a message about this request."""
        return encode(self._header(kind, to, meta), tensors, self._limits)

    def finish(
        self, entry: Entry, frames: Frames, *, keep: bool, rejected: bool = False, if_pending: bool = False
    ) -> bool:
        """Send the reply to a request; `keep` stores it for a client that does not receive it.

        A second reply raises; with `if_pending` it is not sent, and the result is False.
        """
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
            self._socket.send(entry.route, frames)
            if self.meter is not None:
                nbytes = entry.nbytes + sum(map(len, frames))
                self.meter.add(entry.kind, time.monotonic() - entry.arrived, nbytes)
            return True

    def send_progress(self, entry: Entry, frames: Frames) -> None:
        """Send a progress message about a pending request."""
        with self._lock:
            if not entry.is_done:
                self._socket.send(entry.route, frames)

    # --- the end ---------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Run the queued requests, reject the deferred ones, and close."""
        until = time.monotonic() + _END_S
        self._pools.close(until)
        for thread in self._unresponsive_threads:
            thread.join(max(0.1, until - time.monotonic()))
        with self._lock:
            for client, state in self._dedup.clients.items():
                for entry in state.entries.values():
                    if not entry.is_done:
                        entry.is_done = True
                        text = f"server {self.endpoint} stopped before it could reply; see its serverlog"
                        self._socket.send(entry.route, self._rejection(entry.id, client, text))
            self._socket.close()
            rejected, malformed = self._counts["rejected_connections"], self._counts["malformed"]
        if rejected > 1 or malformed > 1:  # the first and every hundredth were logged
            logger.warning(
                "%s: rejected %d connections and %d malformed messages", self.endpoint, rejected, malformed
            )
