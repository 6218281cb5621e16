"""Endpoints as Paddle writes them, host:port, and as ZeroMQ wants them."""

# SPDX-License-Identifier: Apache-2.0
import ipaddress
import socket
import time
from typing import Any

import zmq

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.settings import Settings

_IN_USE_S = 5.0
"""How long a server waits for its port: the one before it may just be ending."""


def split(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint; an IPv6 address stands in brackets."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{endpoint!r} is no endpoint; use host:port, such as 127.0.0.1:6174")
    return host.removeprefix("[").removesuffix("]"), int(port)


def connect(sock: "zmq.Socket[Any]", endpoint: str) -> None:
    """Let ZeroMQ connect, now or whenever somebody listens there."""
    host, port = split(endpoint)
    sock.ipv6 = ":" in host
    sock.connect(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")


def bind(sock: "zmq.Socket[Any]", endpoint: str, settings: Settings) -> str:
    """Listen at exactly this address; returns it with the port that the system chose for port 0."""
    host, port = split(endpoint)
    address = _resolve(host, endpoint)
    if not (settings.token or ipaddress.ip_address(address).is_loopback):
        raise ConfigError(
            f"a parameter server at {endpoint} without a job token could be used by anybody; "
            "without one only loopback addresses are allowed; give all processes the same ARGOSY_JOB_TOKEN"
        )
    sock.ipv6 = ":" in address
    url = f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
    until = time.monotonic() + _IN_USE_S
    while True:
        try:
            sock.bind(url)
        except zmq.ZMQError as e:
            if e.errno != zmq.EADDRINUSE:
                raise ConfigError(
                    f"cannot listen at {endpoint}: {e}; use an address of this host and a free port"
                ) from e
            if time.monotonic() > until:
                raise ConfigError(
                    f"cannot listen at {endpoint}: another process has had this port for {_IN_USE_S:g} s; "
                    "end it, or use another port"
                ) from e
            time.sleep(0.1)
        else:
            return f"{endpoint.rpartition(':')[0]}:{sock.get_string(zmq.LAST_ENDPOINT).rpartition(':')[2]}"


def _resolve(host: str, endpoint: str) -> str:
    """ZeroMQ binds to numbers, not to names."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as e:
        raise ConfigError(
            f"{endpoint}: there is no host {host!r} ({e}); use a name or an address of this host"
        ) from e
