"""A thread that exchanges heartbeats with every server.

It has its own connections: behind a large push a heartbeat would be late.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

import zmq

from argosy.engine.errors import BadMessage
from argosy.engine.ps.rpc import sockets
from argosy.engine.ps.rpc.sockets import Context, RpcSettings
from argosy.engine.ps.rpc.wire import Header, Limits, decode, encode

_MISSED_HEARTBEATS = 5
"""After this many heartbeats without a reply it reconnects: ZeroMQ may have dropped the connection."""


class Heartbeat:
    """Sends heartbeats until `stop`."""

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        settings: RpcSettings,
        make_header: Callable[[int], Header],
        on_heartbeat: Callable[[int, Header], None],
        tick: Callable[[], None],
    ) -> None:
        self._thread = threading.Thread(target=self._run, name="ps-heartbeat", daemon=True)
        self._context, self._endpoints, self._settings = context, endpoints, settings
        self._make_header, self._on_heartbeat, self._tick = make_header, on_heartbeat, tick
        self._sockets = [self._connect(endpoint) for endpoint in endpoints]
        self._missed = [0] * len(endpoints)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._exchange_once():
                self._tick()
        finally:
            for socket in self._sockets:
                socket.close(linger=0)

    def stop(self) -> None:
        """Stop the thread and close its connections."""
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def _connect(self, endpoint: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        sockets.tune_client(socket)
        socket.immediate = True  # do not queue heartbeats for a server that is not connected
        sockets.guard_client(socket, self._settings)
        sockets.connect(socket, endpoint)
        return socket

    def _exchange_once(self) -> bool:
        """Send one heartbeat to each server, receive replies until the next is due; True if the thread should stop."""
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for server in range(len(self._sockets)):
            socket = self._connected_socket(server)
            with contextlib.suppress(zmq.Again):  # not connected; the next heartbeat tries again
                sockets.send(socket, encode(self._make_header(server)))
            poller.register(socket, zmq.POLLIN)
        until = time.monotonic() + self._settings.heartbeat_s
        while (left := until - time.monotonic()) > 0:
            for readable, _ in poller.poll(round(left * 1000)):
                if readable == self._wake:
                    return True
                self._receive(self._sockets.index(readable))
        return False

    def _connected_socket(self, server: int) -> "zmq.Socket[bytes]":
        self._missed[server] += 1
        if self._missed[server] % _MISSED_HEARTBEATS == 0:
            self._sockets[server].close(linger=0)
            self._sockets[server] = self._connect(self._endpoints[server])
        return self._sockets[server]

    def _receive(self, server: int) -> None:
        try:
            header = decode(self._sockets[server].recv_multipart(), Limits()).header
        except BadMessage:  # the server counts and logs it; the data connection raises
            return
        self._missed[server] = 0
        self._on_heartbeat(server, header)
