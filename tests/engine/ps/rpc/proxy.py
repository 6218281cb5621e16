"""Two ways to make trouble between client and server: one cuts TCP connections, one mistreats messages."""

# SPDX-License-Identifier: Apache-2.0
import heapq
import itertools
import random
import socket
import threading
import time
from typing import Any

import zmq

from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc import sockets
from argosy.engine.ps.rpc.sockets import Authenticator, RpcSettings


class Cutter:
    """Passes bytes on in both directions, until `cut` ends every connection."""

    def __init__(self, endpoint: str) -> None:
        self._target = Endpoint.parse(endpoint)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._pairs: list[socket.socket] = []
        self.cuts = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """End all connections as they stand; new ones are accepted."""
        pairs, self._pairs = self._pairs, []
        self.cuts += len(pairs) // 2
        for end in pairs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the other side was faster

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _start(self, function: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=function, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self._pairs += [near, far]
            self._start(self._pass_on, near, far)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            back = threading.Thread(target=_copy, args=(far, near))
            back.start()
            _copy(near, far)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass  # it was cut
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


class Mistreater:
    """Passes messages on, and drops, repeats or delays some of them, requests and answers alike."""

    def __init__(self, endpoint: str, settings: RpcSettings, seed: int, share: float) -> None:
        self._target, self._settings, self._share = endpoint, settings, share
        self._random = random.Random(seed)
        self.dropped = self.repeated = self.delayed = 0
        self._number = itertools.count()
        self._later: list[tuple[float, int, Any, list[bytes]]] = []
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = Authenticator(self._context, settings, lambda why: None)
        self._front = self._context.socket(zmq.ROUTER)
        self._authenticator.guard(self._front)
        self.endpoint = sockets.bind(self._front, "127.0.0.1:0", settings)
        self._poller = zmq.Poller()
        self._poller.register(self._front, zmq.POLLIN)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._authenticator.close()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        routes: dict[Any, bytes] = {}
        while not self._is_over.is_set():
            self._authenticator.handle()
            for readable, _ in self._poller.poll(5):
                if readable is self._front:
                    route, *frames = self._front.recv_multipart()
                    if route not in self._backs:
                        self._backs[route] = self._connect()
                        routes[self._backs[route]] = route
                    self._treat(self._backs[route], frames)
                else:
                    self._treat(self._front, [routes[readable], *readable.recv_multipart()])
            while self._later and self._later[0][0] < time.monotonic():
                _, _, target, frames = heapq.heappop(self._later)
                target.send_multipart(frames)

    def _connect(self) -> "zmq.Socket[bytes]":
        back = self._context.socket(zmq.DEALER)
        sockets.guard_client(back, self._settings)
        sockets.connect(back, self._target)
        self._poller.register(back, zmq.POLLIN)
        return back

    def _treat(self, target: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
        fate = self._random.random() / self._share
        if fate < 1:
            self.dropped += 1
        elif fate < 2:
            self.repeated += 1
            target.send_multipart(frames)
            self._delay(target, frames)
        elif fate < 3:
            self.delayed += 1
            self._delay(target, frames)
        else:
            target.send_multipart(frames)

    def _delay(self, target: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
        at = time.monotonic() + self._random.random() * 0.2
        heapq.heappush(self._later, (at, next(self._number), target, frames))
