"""Addresses of this host: which one other hosts reach, which are loopback, which are local."""

# SPDX-License-Identifier: Apache-2.0
import ipaddress
import socket

from argosy.engine.errors import ConfigError

_ANY_PORT = 9  # nothing is sent: connecting a datagram socket only makes the kernel look up the route


def local_address(remote: str) -> str:
    """The source address of this host on the route to `remote` (a name or an address)."""
    try:
        family, _, _, _, target = socket.getaddrinfo(remote, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as e:
        raise ConfigError(
            f"there is no route from this host to {remote!r}: {e}; check the name, and the network between the hosts"
        ) from e


def is_loopback(address: str) -> bool:
    """True if other hosts cannot reach the address."""
    return ipaddress.ip_address(address).is_loopback


def is_local(address: str) -> bool:
    """True if a socket of this host can be bound to the address."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(target)
    except OSError:
        return False
    return True
