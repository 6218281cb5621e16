"""A thread that tells every server that this client lives, and hears whether the server does.

It has connections of its own: behind a large push a heartbeat would be late.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import zmq

from argosy.engine.errors import BadMessage
from argosy.engine.ps.rpc import address, security, tcp
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.rpc.wire import Header, Limits, decode, encode

_MUTE_BEATS = 5
"""After so many beats without an answer the connection is made anew: ZeroMQ may have given it up."""
Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"


class Heart(threading.Thread):
    """Beats until `stop`."""

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        settings: Settings,
        beat: Callable[[int], Header],
        heard: Callable[[int, Header], None],
        tend: Callable[[], None],
    ) -> None:
        super().__init__(name="ps-heart", daemon=True)
        self._context, self._endpoints, self._settings = context, endpoints, settings
        self._beat, self._heard, self._tend = beat, heard, tend
        self._sockets = [self._connect(endpoint) for endpoint in endpoints]
        self._mute = [0] * len(endpoints)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)

    def run(self) -> None:
        try:
            while not self._beat_once():
                self._tend()
        finally:
            for socket in self._sockets:
                socket.close(linger=0)

    def stop(self) -> None:
        """End the thread and close its connections."""
        os.eventfd_write(self._wake, 1)
        self.join()
        os.close(self._wake)

    def _connect(self, endpoint: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        tcp.tune_client(socket, self._settings)
        socket.immediate = True  # beats for a server that is away are not kept
        security.guard_client(socket, self._settings)
        address.connect(socket, endpoint)
        return socket

    def _beat_once(self) -> bool:
        """One beat to each server, and their answers until the next one is due; True if it is time to stop."""
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for server in range(len(self._sockets)):
            socket = self._speaking(server)
            with contextlib.suppress(zmq.Again):  # nobody is connected; there is a next beat
                tcp.send(socket, encode(self._beat(server)))
            poller.register(socket, zmq.POLLIN)
        until = time.monotonic() + self._settings.heartbeat_s
        while (left := until - time.monotonic()) > 0:
            for found, _ in poller.poll(round(left * 1000)):
                if found == self._wake:
                    return True
                self._take(self._sockets.index(found))
        return False

    def _speaking(self, server: int) -> "zmq.Socket[bytes]":
        self._mute[server] += 1
        if self._mute[server] % _MUTE_BEATS == 0:
            self._sockets[server].close(linger=0)
            self._sockets[server] = self._connect(self._endpoints[server])
        return self._sockets[server]

    def _take(self, server: int) -> None:
        try:
            header = decode(self._sockets[server].recv_multipart(), Limits()).header
        except BadMessage:  # its listener counts and tells what is wrong; the data connection raises
            return
        self._mute[server] = 0
        self._heard(server, header)
