"""One server as a client sees it: the connection, and the requests that wait for an answer.

A request that may be lost is not sent again blindly: a message without tensors asks what became of it.

    request 7 ──▶ ✗                        the connection breaks, the server is started anew, or 2, 4, 8 s pass
    again 7   ──▶ knows it: answers when it has the answer, or once more
              ◀── unknown 7
    request 7 ──▶                          the same number: the server will not run it twice

Not safe for threads: the client's lock guards it.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Literal

import zmq
from zmq.utils.monitor import parse_monitor_message

from argosy.engine.errors import BadMessage, DeadlineError, RefusedError, RpcError
from argosy.engine.log import logger
from argosy.engine.ps.rpc import address, security, tcp
from argosy.engine.ps.rpc.reply import Answer, Reply
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.rpc.wire import VERSION, Header, Limits, decode, encode

_STUCK_S = 5.0
"""ZeroMQ tries to connect at least once a second; if it has stopped trying for so long, it has given up."""
_FAILED, _FAILED_S = 4, 10.0
"""So many handshakes that fail within so long mean that the keys do not fit; a server that is busy takes longer."""
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
        settings: Settings,
        me: Header,
        now: float,
    ) -> None:
        self.endpoint, self._settings, self._me = endpoint, settings, me
        self._limits = Limits(settings.max_message_bytes)
        self.pending: dict[int, Reply] = {}
        self._due: list[Reply] = []
        self.next_id = 1
        self.life = ""
        """The server's, as of its last answer."""
        self.heard = -1e9
        """When the server gave a sign of life."""
        self.refused = ""
        """Not empty: the server does not want us, and why."""
        self._state: Literal["off", "shaking hands", "on"] = "off"
        self._was_connected = False
        self._failures: list[float] = []
        self._event_at = now
        self._socket = context.socket(zmq.DEALER)
        tcp.tune_client(self._socket, settings)
        security.guard_client(self._socket, settings)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        address.connect(self._socket, endpoint)
        self.descriptors = (tcp.descriptor(self._socket), tcp.descriptor(self._monitor))

    @property
    def settled(self) -> int:
        """All requests below this number are over."""
        return next(iter(self.pending), self.next_id)

    def header(self, kind: str, id_: int) -> Header:
        """A header of ours, up to date."""
        me = self._me
        return Header(VERSION, kind, id_, me.client, me.who, me.trainer, self.settled)

    def start(self, reply: Reply) -> None:
        """Send a new request, or keep it until there is a connection."""
        reply.ask_at = reply.started + self._settings.retry_s
        self.pending[reply.id] = reply
        self.next_id = reply.id + 1
        if self.refused:
            self._end(reply, RefusedError(self.refused))
            return
        self._due.append(reply)
        self._send_due()

    def take(self, now: float) -> bool:
        """Take all that has come, send all that can go; True if requests are over now."""
        over = False
        while tcp.is_readable(self._socket):
            frames = [self._socket.recv(copy=False)]
            while frames[-1].more:
                frames.append(self._socket.recv(copy=False))
            over |= self._take(frames, now)
        if self._due and tcp.is_writable(self._socket):
            self._send_due()
        return over

    def tend(self, now: float) -> bool:
        """Do what the clock and the state of the connection ask for; True if requests are over now."""
        over = self._watch(now)
        over |= self.take(now)
        is_alive = now - self.heard < 3 * self._settings.heartbeat_s + 1
        for reply in list(self.pending.values()):
            if now - reply.heard >= self._settings.deadline_s:
                self._end(reply, self._too_late(reply))
                over = True
            elif (
                is_alive
                and reply.is_sent
                and now >= reply.ask_at
                and reply.asked < self._settings.retry_times
            ):
                self._ask(reply)
                reply.asked += 1
                reply.ask_at = now + self._settings.retry_s * 2**reply.asked
        self._send_due()
        return over

    def note_life(self, life: str) -> None:
        """The server says who it is: another one than before knows nothing of what was sent."""
        if self.life and life != self.life:
            logger.info("server %s has been started anew", self.endpoint)
            self._ask_about_all()
        self.life = life

    def forget(self, reply: Reply) -> None:
        """Nobody wants this answer any more."""
        self._end(reply, RpcError(f"{reply.kind} {reply.id} was given up; wait for what is still wanted"))

    def end_all(self, error: RpcError) -> None:
        """No request gets an answer any more."""
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
                    ask = reply.due == "ask"
                    tcp.send(self._socket, encode(self.header("again", reply.id)) if ask else reply.frames)
                except zmq.Again:
                    del self._due[:i]
                    return
                reply.is_sent, reply.due = True, ""
        self._due.clear()

    def _ask(self, reply: Reply) -> None:
        if not reply.due:
            reply.due = "ask"
            self._due.append(reply)

    def _ask_about_all(self) -> None:
        for reply in self.pending.values():
            if reply.is_sent:
                self._ask(reply)

    # --- receiving -------------------------------------------------------------------------------------

    def _take(self, frames: list[zmq.Frame], now: float) -> bool:
        self.heard = now
        try:
            message = decode(frames, self._limits)
        except BadMessage as e:
            return self._take_bad(e)
        header = message.header
        self.note_life(header.server)
        reply = self.pending.get(header.id)
        if reply is None:  # a second answer to a request that was repeated
            return False
        match header.kind:
            case "answer":
                self._end(reply, Answer(header.meta, message.tensors))
            case "refuse":
                self._end(reply, RefusedError(str(header.meta.get("text"))))
            case "tell":
                reply.told, reply.heard = str(header.meta.get("text")), now
            case "unknown":
                if not reply.due:
                    self._due.append(reply)
                reply.due = "send"
        return reply.is_over

    def _take_bad(self, error: BadMessage) -> bool:
        reply = self.pending.get(error.header.id) if isinstance(error.header, Header) else None
        if reply is None:
            logger.warning("server %s: an answer that makes no sense is dropped: %s", self.endpoint, error)
            return False
        self._end(reply, error)
        return True

    def _end(self, reply: Reply, result: Answer | RpcError) -> None:
        del self.pending[reply.id]
        reply.end(result)

    def _too_late(self, reply: Reply) -> DeadlineError:
        connected = "is connected and" if self._state == "on" else "is not connected and"
        return DeadlineError(
            f"server {self.endpoint} {connected} has said nothing for {self._settings.deadline_s:g} s about "
            f"{reply.what!r} (request {reply.kind} {reply.id}); is it running? see its serverlog; "
            "if it only needs more time, raise FLAGS_rpc_deadline (milliseconds)"
        )

    # --- the connection --------------------------------------------------------------------------------

    def _watch(self, now: float) -> bool:
        while tcp.is_readable(self._monitor):
            self._note(parse_monitor_message(self._monitor.recv_multipart())["event"], now)
            self._event_at = now
        if len(self._failures) >= _FAILED and not (self._was_connected or self.refused):
            self.refused = self._unwanted("it ended every handshake without a word")
        if self.refused:
            over = bool(self.pending)
            self.end_all(RefusedError(self.refused))
            return over
        if self._state == "off" and now - self._event_at > _STUCK_S:
            self._connect_anew(now)
        return False

    def _note(self, event: int, now: float) -> None:
        match event:
            case zmq.EVENT_CONNECTED:
                self._state = "shaking hands"
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state, self._failures, self.refused = "on", [], ""
                # Not at the disconnect: what is sent then may still go into the old connection's queue.
                if self._was_connected:
                    self._ask_about_all()
                self._was_connected = True
            case zmq.EVENT_DISCONNECTED:
                self._state = "off"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._state, self.refused = "off", self._unwanted("it refused this process's token")
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._state = "off"
                if not self._was_connected:
                    self.refused = self._unwanted("it speaks another protocol")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._state = "off"
                self._failures = [*(at for at in self._failures if now - at < _FAILED_S), now]

    def _unwanted(self, why: str) -> str:
        return (
            f"server {self.endpoint} does not accept this process: {why}; all processes of a job need the same "
            "ARGOSY_JOB_TOKEN and the same ARGOSY_PS_ENCRYPT, and the port must be a parameter server's"
        )

    def _connect_anew(self, now: float) -> None:
        """After a violation of its protocol ZeroMQ does not connect again by itself."""
        self._event_at = now
        try:
            self._socket.disconnect(self._socket.get_string(zmq.LAST_ENDPOINT))
        except zmq.ZMQError:
            logger.debug("server %s: the connection had been given up", self.endpoint)
        address.connect(self._socket, self.endpoint)
