"""Ports: rank 0's is bound by a socket from the moment it is chosen."""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import threading

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.ports import free_ports, listen, stable_ports


def test_free_ports_are_different() -> None:
    assert len(set(free_ports("127.0.0.1", 20))) == 20


def test_the_socket_listens_on_that_address_only() -> None:
    with listen("127.0.0.1", 0) as s:
        assert s.getsockname()[0] == "127.0.0.1"
        socket.create_connection(s.getsockname(), timeout=5).close()


def test_a_port_in_use_is_reported_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"port {port} of 127.0.0.1 is in use by process {os.getpid()} .*python"
        ):
            listen("127.0.0.1", port)


def test_a_port_that_is_released_soon_is_waited_for() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    threading.Timer(0.3, taken.close).start()
    listen("127.0.0.1", port, timeout_s=10).close()


def test_a_foreign_address_is_rejected() -> None:
    with pytest.raises(ConfigError, match="cannot listen on 203.0.113.7:6070"):
        listen("203.0.113.7", 6070)


def test_stable_ports_are_outside_of_the_ephemeral_range() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        low, high = map(int, f.read().split())
    chosen = stable_ports("127.0.0.1", 20)
    assert len(set(chosen)) == 20
    assert not [p for p in chosen if low <= p <= high or p < 10_000]
