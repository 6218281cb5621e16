"""Endpoints, host:port; and addresses of this host: which one other hosts reach, which are loopback or local."""

# SPDX-License-Identifier: Apache-2.0
import socket
from typing import NamedTuple, Self

from argosy.engine.errors import ConfigError

_ANY_PORT = 9  # nothing is sent: connecting a datagram socket only makes the kernel look up the route


class Endpoint(NamedTuple):
    """A host name or address, and a port; written host:port, or [address]:port for IPv6."""

    host: str
    """Without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str, where: str = "", least_port: int = 1) -> Self:
        """Raises ConfigError if the text is malformed; `where` names the option or variable that it came from."""
        host, _, port = text.strip().rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if is_bracketed else host
        if ":" in bare and not is_bracketed:
            raise ConfigError(
                f"{_prefix(where)}{text!r} is not an endpoint; write an IPv6 address in brackets, such as [::1]:6170"
            )
        is_port = port.isascii() and port.isdecimal() and least_port <= int(port) <= 65535
        if not bare or not is_port or any(c in bare for c in "[] "):
            raise ConfigError(
                f"{_prefix(where)}{text!r} is not an endpoint; use host:port, such as 127.0.0.1:6170"
            )
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def host_of(endpoint: str) -> str:
    """The host of an endpoint, without brackets."""
    return Endpoint.parse(endpoint).host


def endpoint_list(text: str, where: str) -> tuple[str, ...]:
    """The endpoints of a comma-separated list; raises ConfigError for a malformed or duplicate one."""
    endpoints = tuple(part.strip() for part in text.split(",") if part.strip())
    check_endpoints(endpoints, where)
    return endpoints


def check_endpoints(endpoints: tuple[str, ...], where: str) -> None:
    """Raise ConfigError for a malformed or duplicate endpoint."""
    for endpoint in endpoints:
        Endpoint.parse(endpoint, where)
        if endpoints.count(endpoint) > 1:
            raise ConfigError(f"{where} has {endpoint} twice; give every process a separate port")


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
    import ipaddress  # takes longer than the rest of fleetrun --help

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
