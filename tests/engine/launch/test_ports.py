"""Ports: rank 0's is held by a socket from the moment it is chosen."""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import threading

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.ports import free_ports, lasting_ports, listen


def test_free_ports_are_different() -> None:
    assert len(set(free_ports("127.0.0.1", 20))) == 20


def test_the_socket_listens_on_that_address_only() -> None:
    with listen("127.0.0.1", 0) as s:
        assert s.getsockname()[0] == "127.0.0.1"
        socket.create_connection(s.getsockname(), timeout=5).close()


def test_a_port_in_use_is_named_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"port {port} of 127.0.0.1 is in use by process {os.getpid()} .*python"
        ):
            listen("127.0.0.1", port)


def test_a_port_that_is_let_go_in_a_moment_is_waited_for() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    threading.Timer(0.3, taken.close).start()
    listen("127.0.0.1", port, patience_s=10).close()


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot listen at 203.0.113.7:6070"):
        listen("203.0.113.7", 6070)


def test_lasting_ports_are_none_that_the_kernel_gives_to_clients() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        low, high = map(int, f.read().split())
    found = lasting_ports("127.0.0.1", 20)
    assert len(set(found)) == 20
    assert not [p for p in found if low <= p <= high or p < 10_000]
