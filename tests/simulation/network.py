"""A simulated network behind what `zmq`, `select` and `os.eventfd` give.

    DEALER ── queue ──▶ connection, latency ──▶ ROUTER inbox      connections are made, ask ZAP, break, are made again
           ◀─────────── connection, latency ─── send to a route   what is on its way is lost when a connection breaks

As with ZeroMQ, a socket's descriptor signals new messages once: only if the inbox was seen empty before. Connections
keep the order of messages, unless the seed asks for faults that TCP does not have: lost, duplicate, reordered messages.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import zmq

from tests.simulation import scheduler
from tests.simulation.scheduler import Process, World

_LOST_S = 20.0
"""A connection over which nothing comes through for so long breaks: TCP_MAXRT."""
_HANDSHAKE_S = 5.0
_RECONNECT_S, _RECONNECT_MAX_S = 0.05, 1.0


@dataclass
class Faults:
    """How messages fare; probabilities for each message."""

    latency_s: float = 2e-4
    slow: float = 0.0
    """Of a latency a hundred times as long."""
    lost: float = 0.0
    duplicate: float = 0.0
    reordered: float = 0.0
    reset: float = 0.0
    """Of a connection that breaks with the message."""


class Frame:
    """One frame as `recv(copy=False)` gives it."""

    def __init__(self, data: bytes, more: bool) -> None:
        self.buffer, self.more = memoryview(bytearray(data)), more

    @property
    def bytes(self) -> bytes:
        return self.buffer.tobytes()

    def __len__(self) -> int:
        return len(self.buffer)


Message = list[Any]
"""Frames: bytes, or what gives them when the message is sent."""


@dataclass(eq=False)
class Connection:
    """One TCP connection with its handshake."""

    client: "Socket"
    server: "Socket"
    route: bytes
    is_up: bool = False
    is_dead: bool = False
    last_arrival: dict[str, float] = field(default_factory=dict)
    stalled_at: float | None = None


class Descriptor:
    """What a poll can wait for."""

    def __init__(self, network: "Network") -> None:
        self.number = next(network.numbers)
        self.is_signalled = False
        self.waiting: list[scheduler.Thread] = []
        self._world = network.world
        network.descriptors[self.number] = self

    def signal(self) -> None:
        self.is_signalled = True
        waiting, self.waiting = self.waiting, []
        for thread in waiting:
            self._world.make_ready(thread)


class Socket:
    """A DEALER, ROUTER or REP socket, or a monitor."""

    def __init__(self, network: "Network", context: "Context", kind: int) -> None:
        self._network, self._context, self._kind = network, context, kind
        self._process = network.world.current.process
        self._descriptor = Descriptor(network)
        self._inbox: deque[list[bytes]] = deque()
        self._is_asleep = True
        """The inbox was seen empty: the next message is news."""
        self._reading: deque[bytes] = deque()
        self._writing: Message = []
        self._queue: deque[Message] = deque()
        self._monitor: Socket | None = None
        self._wanted_events = 0
        self._connection: Connection | None = None
        self._connections: dict[bytes, Connection] = {}
        self._address = ""
        self._backoff = _RECONNECT_S
        self._is_closed = False
        self.immediate = False

    # --- options --------------------------------------------------------------------------------------

    def set(self, option: int, value: int) -> None:
        pass

    def get(self, option: int) -> int:
        if option == zmq.FD:
            return self._descriptor.number
        assert option == zmq.EVENTS, option
        self._descriptor.is_signalled = False
        if self._is_readable:
            return int(zmq.POLLIN | zmq.POLLOUT)
        self._is_asleep = True
        return int(zmq.POLLOUT)

    def get_string(self, option: int) -> str:
        assert option == zmq.LAST_ENDPOINT, option
        return self._address

    @property
    def _is_readable(self) -> bool:
        return bool(self._inbox or self._reading)

    def get_monitor_socket(self, events: int) -> "Socket":
        self._monitor, self._wanted_events = Socket(self._network, self._context, zmq.PAIR), events
        return self._monitor

    def disable_monitor(self) -> None:
        self._monitor = None

    def _tell(self, event: int, value: int = 0) -> None:
        if self._monitor is not None and event & self._wanted_events:
            self._monitor._arrive([struct.pack("=hi", event, value), self._address.encode()])

    # --- connecting -----------------------------------------------------------------------------------

    def bind(self, url: str) -> None:
        if url.startswith("inproc:"):
            self._context.zap = self
            return
        if self._network.bound.get(url) is not None:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        self._network.bound[url] = self
        self._address = url

    def connect(self, url: str) -> None:
        self._address = url
        self._network.world.after(self._network.latency(), self._try_to_connect)

    def disconnect(self, url: str) -> None:
        if self._connection is None:
            raise zmq.ZMQError(zmq.ENOENT)
        self._network.end(self._connection)

    def _try_to_connect(self) -> None:
        network, world = self._network, self._network.world
        if self._is_closed or self._process.is_dead or self._connection is not None:
            return
        server = network.bound.get(self._address)
        if server is None or network.is_cut(self._process, server._process):
            self._tell(zmq.EVENT_CONNECT_RETRIED)
            self._backoff = min(2 * self._backoff, _RECONNECT_MAX_S)
            world.after(self._backoff, self._try_to_connect)
            return
        connection = Connection(self, server, b"\0" + next(network.numbers).to_bytes(4, "big"))
        self._connection = server._connections[connection.route] = connection
        self._tell(zmq.EVENT_CONNECTED)
        server._tell(zmq.EVENT_ACCEPTED, 100)
        server._context.ask_zap(self, connection)
        world.after(_HANDSHAKE_S, lambda: network.give_up_handshake(connection))

    def is_up(self, connection: Connection) -> None:
        """The handshake has succeeded."""
        if connection.is_dead or self._connection is not connection:
            return
        connection.is_up, self._backoff = True, _RECONNECT_S
        self._tell(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        while self._queue and not connection.is_dead:
            self._network.carry(connection, "up", self._queue.popleft())

    def lose(self, connection: Connection) -> None:
        """The connection is gone; ZeroMQ makes another one."""
        if self._connection is connection:
            self._connection = None
            self._tell(zmq.EVENT_DISCONNECTED)
            self._network.world.after(self._backoff, self._try_to_connect)

    def close(self, linger: int | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._network.bound.get(self._address) is self and self._kind == zmq.ROUTER:
            del self._network.bound[self._address]
        for connection in [self._connection, *self._connections.values()]:
            if connection is not None:
                self._network.world.after(self._end_delay(connection), partial(self._network.end, connection))

    def _end_delay(self, connection: Connection) -> float:
        """The system sends what is on its way before it closes a connection, or resets it and drops that."""
        delay, world = self._network.latency(), self._network.world
        if world.random.random() < 0.5:
            return 0.0
        return max([delay, *(at - world.now for at in connection.last_arrival.values())])

    # --- messages -------------------------------------------------------------------------------------

    def send(self, frame: Any, flags: int = 0, copy: bool = True) -> None:
        if self.immediate and (self._connection is None or not self._connection.is_up):
            raise zmq.Again
        self._writing.append(bytes(frame) if copy else memoryview(frame))
        if flags & zmq.SNDMORE:
            return
        message, self._writing = self._writing, []
        if self._network.world.random.random() < 0.5:  # to send is to look at what has happened
            self._descriptor.is_signalled = False
        if self._kind == zmq.ROUTER:
            connection = self._connections.get(bytes(message[0]))
            if connection is not None and not connection.is_dead:
                self._network.carry(connection, "down", message[1:])
        elif self._connection is not None and self._connection.is_up:
            self._network.carry(self._connection, "up", message)
        else:
            self._queue.append(message)

    def recv(self, copy: bool = True) -> Any:
        if not self._reading:
            self._reading.extend(self._inbox.popleft())
        data = self._reading.popleft()
        return data if copy else Frame(data, bool(self._reading))

    def recv_multipart(self) -> list[bytes]:
        return self._inbox.popleft()

    def send_multipart(self, frames: Sequence[bytes]) -> None:
        """A REP socket answers a question of ZAP."""
        self._context.handle_zap_request(frames)

    def _arrive(self, message: list[bytes]) -> None:
        if self._is_closed or self._process.is_dead:
            return
        self._inbox.append(message)
        for thread in self._descriptor.waiting:  # a Poller looks at the inbox itself
            self._network.world.make_ready(thread)
        if self._is_asleep:
            self._is_asleep = False
            self._descriptor.signal()


class Context:
    """The sockets of a process, and their ZAP handler."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self.zap: Socket | None = None
        self._asking: deque[tuple[Socket, Connection]] = deque()
        self._sockets: list[Socket] = []
        network.world.current.process.on_kill.append(self._end)

    def socket(self, kind: int) -> Socket:
        socket = Socket(self._network, self, kind)
        self._sockets.append(socket)
        return socket

    def term(self) -> None:
        for socket in self._sockets:
            socket.close()

    def destroy(self, linger: int | None = None) -> None:
        self.term()

    def _end(self) -> None:
        """The process was killed: the operating system closes its connections."""
        self.term()

    def ask_zap(self, client: Socket, connection: Connection) -> None:
        if self.zap is None:
            return
        self._asking.append((client, connection))
        credentials = (client.plain_username, client.plain_password)  # type: ignore[attr-defined]
        self.zap._arrive([b"1.0", b"1", b"argosy", b"", b"", b"PLAIN", *credentials])

    def handle_zap_request(self, frames: Sequence[bytes]) -> None:
        client, connection = self._asking.popleft()
        if frames[2] == b"200":
            self._network.world.after(self._network.latency(), lambda: client.is_up(connection))
        else:
            client._tell(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            self._network.end(connection)


class Network:
    """All connections, and what goes wrong with them."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world, self.faults = world, faults
        self.numbers = itertools.count(100)
        self.descriptors: dict[int, Descriptor] = {}
        self.bound: dict[str, Socket] = {}
        self.messages = 0
        self._cuts: dict[str, float] = {}
        """Unreachable processes, by name, and until when."""

    def latency(self) -> float:
        drawn = self.world.random
        slow = 100.0 if drawn.random() < self.faults.slow else 1.0
        return self.faults.latency_s * (0.5 + drawn.random()) * slow

    def cut(self, name: str, seconds: float) -> None:
        """Nobody reaches the processes of this name for a while."""
        self._cuts[name] = max(self._cuts.get(name, 0.0), self.world.now + seconds)

    def is_cut(self, one: Process, other: Process) -> bool:
        return self.world.now < self._healed_at(one, other)

    def _healed_at(self, one: Process, other: Process) -> float:
        return max(self._cuts.get(one.name, 0.0), self._cuts.get(other.name, 0.0))

    def carry(self, connection: Connection, way: str, message: Message) -> None:
        """Send a message over a connection."""
        faults, drawn = self.faults, self.world.random
        self.messages += 1
        if drawn.random() < faults.reset:
            self.world.after(self.latency(), lambda: self.end(connection))
        if drawn.random() < faults.lost:
            return
        for _ in range(2 if drawn.random() < faults.duplicate else 1):
            at = self.world.now + self.latency()
            if drawn.random() >= faults.reordered:
                at = connection.last_arrival[way] = max(at, connection.last_arrival.get(way, 0.0))
            self.world.at(at, lambda: self._deliver(connection, way, message))

    def _deliver(self, connection: Connection, way: str, message: Message) -> None:
        if connection.is_dead:
            return
        client, server = connection.client, connection.server
        healed = self._healed_at(client._process, server._process)
        if healed > self.world.now:
            connection.stalled_at = connection.stalled_at or self.world.now
            if healed - connection.stalled_at > _LOST_S:
                self.world.at(connection.stalled_at + _LOST_S, lambda: self.end(connection))
            else:
                self.world.at(healed, lambda: self._deliver(connection, way, message))
            return
        connection.stalled_at = None
        frames = [bytes(frame) for frame in message]
        if way == "up":
            server._arrive([connection.route, *frames])
        else:
            client._arrive(frames)

    def end(self, connection: Connection) -> None:
        """A connection breaks."""
        if connection.is_dead:
            return
        connection.is_dead = True
        connection.server._connections.pop(connection.route, None)
        connection.client.lose(connection)

    def give_up_handshake(self, connection: Connection) -> None:
        if not connection.is_up and not connection.is_dead:
            connection.client._tell(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            self.end(connection)

    def break_all(self, name: str) -> None:
        """Break the connections of the processes of this name."""
        for server in list(self.bound.values()):
            for connection in list(server._connections.values()):
                if name in (connection.client._process.name, server._process.name):
                    self.end(connection)

    # --- in the place of modules ----------------------------------------------------------------------

    def zmq(self) -> SimpleNamespace:
        constants = {name: getattr(zmq, name) for name in dir(zmq) if name.isupper()}
        return SimpleNamespace(
            **constants,
            Context=lambda: Context(self),
            Poller=lambda: Poller(self),
            Again=zmq.Again,
            ZMQError=zmq.ZMQError,
        )

    def select(self) -> SimpleNamespace:
        return SimpleNamespace(poll=lambda: Poll(self), POLLIN=1)

    def os(self) -> SimpleNamespace:
        return SimpleNamespace(
            eventfd=self._eventfd,
            eventfd_write=lambda number, value: self.descriptors[number].signal(),
            eventfd_read=self._eventfd_read,
            close=lambda number: self.descriptors.pop(number, None),
            getpid=lambda: 1,
            EFD_NONBLOCK=0,
            EFD_CLOEXEC=0,
        )

    def _eventfd(self, value: int, flags: int = 0) -> int:
        return Descriptor(self).number

    def _eventfd_read(self, number: int) -> int:
        descriptor = self.descriptors[number]
        if not descriptor.is_signalled:
            raise BlockingIOError
        descriptor.is_signalled = False
        return 1


class Poll:
    """`select.poll` over descriptors."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._numbers: list[int] = []

    def register(self, number: int, flags: int) -> None:
        self._numbers.append(number)

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        world = self._network.world
        until = world.now + timeout_ms / 1000
        while True:
            ready = [
                (number, 1)
                for number in self._numbers
                if (known := self._network.descriptors.get(number)) is not None and known.is_signalled
            ]
            if ready or world.now >= until:
                if not ready:
                    world.interrupt()  # as a system call may
                return ready
            for number in self._numbers:
                self._network.descriptors[number].waiting.append(world.current)
            world.block(until - world.now)


class Poller:
    """`zmq.Poller`: sockets by what is in their inbox, and descriptors."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._watched: list[Socket | int] = []

    def register(self, watched: Socket | int, flags: int) -> None:
        self._watched.append(watched)

    def poll(self, timeout_ms: float) -> list[tuple[Socket | int, int]]:
        world = self._network.world
        until = world.now + timeout_ms / 1000
        while True:
            ready = [(one, 1) for one in self._watched if self._is_ready(one)]
            if ready or world.now >= until:
                if not ready:
                    world.interrupt()
                return ready
            for one in self._watched:
                number = one if isinstance(one, int) else one.get(zmq.FD)
                self._network.descriptors[number].waiting.append(world.current)
            world.block(until - world.now)

    def _is_ready(self, one: Socket | int) -> bool:
        return self._network.descriptors[one].is_signalled if isinstance(one, int) else one._is_readable
