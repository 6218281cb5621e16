"""How ZeroMQ's sockets are set up, and how frames are handed to them."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import zmq

from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.rpc.wire import Frames

# Plain numbers: pyzmq's enums cost as much as what they are used for.
_LAST, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_COPY_BYTES = 1 << 16
"""Below this a copy is cheaper than to be told when the memory is free again."""
_LOST_S = 20
"""A peer that acknowledges nothing for so long is gone, even if nobody has closed the connection."""


def tune(socket: "zmq.Socket[Any]", settings: Settings) -> None:
    """Settings of both sides: no message is dropped for its number, and connections to nobody are noticed."""
    socket.sndhwm = socket.rcvhwm = 0  # who asks is the limit; a ROUTER would drop answers in silence
    socket.maxmsgsize = settings.max_message_bytes
    socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, _LOST_S // 2
    socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 5, _LOST_S // 10
    socket.set(zmq.TCP_MAXRT, _LOST_S * 1000)


def tune_client(socket: "zmq.Socket[Any]", settings: Settings) -> None:
    """Settings of those who connect.

    IMMEDIATE stays off: with it ZeroMQ drops answers that have come but were not read when a connection ends, such
    as the last one of a server that stops. LINGER 0: after a close nobody waits for answers.
    """
    tune(socket, settings)
    socket.linger = 0
    socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1000
    socket.connect_timeout = 3000


def send(socket: "zmq.Socket[Any]", frames: Frames) -> None:
    """Hand a message to ZeroMQ, large frames without a copy; zmq.Again if there is no connection."""
    last = len(frames) - 1
    for i, frame in enumerate(frames):
        socket.send(frame, _LAST if i == last else _MORE, copy=len(frame) < _COPY_BYTES)


def descriptor(socket: "zmq.Socket[Any]") -> int:
    """Becomes readable when something has happened to the socket; to look at it is to take that off."""
    return int(socket.get(zmq.FD))


def is_readable(socket: "zmq.Socket[Any]") -> bool:
    """Whether a message has come."""
    return int(socket.get(zmq.EVENTS)) & _IN != 0


def is_writable(socket: "zmq.Socket[Any]") -> bool:
    """Whether a message can be handed over."""
    return int(socket.get(zmq.EVENTS)) & _OUT != 0
