"""ServerSocket: its end, while clients connect."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import threading
import time
from collections import Counter

import pytest

from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc.sockets import Authenticator, RpcSettings, ServerSocket


def test_a_server_socket_closes_while_clients_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of a connection that nothing reads would block ZeroMQ's thread, and `close` would wait for it."""
    server = ServerSocket("127.0.0.1:0", RpcSettings(token="token"), threading.RLock(), Counter())
    endpoint, is_over = Endpoint.parse(server.endpoint), threading.Event()

    def connect() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                socket.create_connection((endpoint.host, endpoint.port), 0.2).close()

    def close_slowly(authenticator: Authenticator) -> None:
        close(authenticator)
        time.sleep(0.3)  # connections arrive in this moment

    close = Authenticator.close
    monkeypatch.setattr(Authenticator, "close", close_slowly)
    threads = [threading.Thread(target=run, daemon=True) for run in (connect, server.close)]
    for thread in threads:
        thread.start()
    threads[1].join(20)
    is_over.set()
    threads[0].join()
    assert not threads[1].is_alive(), "it does not end"
