"""Endpoints, host:port; and addresses of this host: of its interfaces, which other hosts reach, which are loopback."""

# SPDX-License-Identifier: Apache-2.0
import array
import fcntl
import re
import socket
import struct
from typing import NamedTuple, Self

from argosy.engine.errors import ConfigError

_ANY_PORT = 9  # nothing is sent: connecting a datagram socket only makes the kernel look up the route
_SIOCGIFCONF, _IFREQ_BYTES = 0x8912, 40
_MAX_IPV4_BYTES = 1024 * _IFREQ_BYTES
_TENTATIVE, _LINK_SCOPE = 0x40, 0x20  # a flag and a scope of /proc/net/if_inet6
_FAMILY_NAMES = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}


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


def has_port(entry: str) -> bool:
    """Whether an entry of a list is host:port or [address]:port, not a host or [address] alone."""
    return ":" in entry and not entry.endswith("]")


def without_brackets(host: str) -> str:
    """A host as it may be written in a list: an IPv6 address with or without brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def host_of(endpoint: str) -> str:
    """The host of an endpoint, without brackets."""
    return Endpoint.parse(endpoint).host


def first_host(nodelist: str) -> str:
    """The first host of SLURM's list: `node[01-03,7],b2` begins with `node01`."""
    first = re.sub(r"\[([^\[\],-]*)[^\[\]]*\]", r"\1", nodelist.strip()).split(",")[0]
    if not first or "[" in first or "]" in first:
        raise ConfigError(
            f"SLURM_NODELIST={nodelist!r} is not a list of hosts; set MASTER_ADDR to the host of rank 0"
        )
    return first


def endpoint_list(text: str, where: str) -> tuple[str, ...]:
    """The endpoints of a comma-separated list; raises ConfigError for a malformed or duplicate one."""
    endpoints = tuple(part.strip() for part in text.split(",") if part.strip())
    check_endpoints(endpoints, where)
    return endpoints


def check_endpoints(endpoints: tuple[str, ...], where: str) -> None:
    """Raise ConfigError for a malformed or duplicate endpoint."""
    listed: set[str] = set()
    for endpoint in endpoints:
        Endpoint.parse(endpoint, where)
        if endpoint in listed:
            raise ConfigError(f"{where} has {endpoint} twice; give every process a separate port")
        listed.add(endpoint)


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


def is_numeric(host: str) -> bool:
    """True for an IPv4 or IPv6 address, without brackets."""
    try:
        socket.inet_pton(family_of(host), host.partition("%")[0])
    except OSError:
        return False
    return True


def resolve(name: str, family: socket.AddressFamily) -> str:
    """The first address of a host in this family; raises OSError if there is none."""
    return str(socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)[0][4][0])


def is_local(address: str) -> bool:
    """True if a socket of this host can be bound to the address."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(target)
    except OSError:
        return False
    return True


class InterfaceAddress(NamedTuple):
    """An address of a network interface of this host."""

    interface: str
    address: str


def interface_addresses() -> list[InterfaceAddress]:
    """The addresses of this host that a peer can connect to: of each interface those of IPv4, then those of IPv6.

    Without link-local IPv6 addresses, which are ambiguous on other hosts.
    """
    known = [*_ipv4_addresses(), *_ipv6_addresses()]
    return [entry for _, name in socket.if_nameindex() for entry in known if entry.interface == name]


def _ipv4_addresses() -> list[InterfaceAddress]:
    buffer = array.array("B", bytes(_MAX_IPV4_BYTES))
    start, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        reply = fcntl.ioctl(s, _SIOCGIFCONF, struct.pack("iP", len(buffer), start))
    size, _ = struct.unpack("iP", reply)
    records = [buffer[i : i + _IFREQ_BYTES].tobytes() for i in range(0, size, _IFREQ_BYTES)]
    return [
        # A further address of eth0 may have the label eth0:1.
        InterfaceAddress(
            record[:16].partition(b"\0")[0].decode().partition(":")[0], socket.inet_ntoa(record[20:24])
        )
        for record in records
    ]


def _ipv6_addresses() -> list[InterfaceAddress]:
    try:
        with open("/proc/net/if_inet6") as f:
            rows = [line.split() for line in f]
    except OSError:  # a kernel without IPv6
        return []
    return [
        InterfaceAddress(name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
        for digits, _, _, scope, flags, name in rows
        if int(scope, 16) != _LINK_SCOPE and not int(flags, 16) & _TENTATIVE
    ]


def family_of(address: str) -> socket.AddressFamily:
    """AF_INET or AF_INET6 of a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def address_of_interface(
    name: str, family: socket.AddressFamily | None = None, option: str = "--interface"
) -> str:
    """The first address of a network interface, of this family if one is given; IPv4 comes first.

    Raises ConfigError, which lists the interfaces and their addresses, if there is none.
    """
    known = interface_addresses()
    candidates = [a for interface, a in known if interface == name and family in (None, family_of(a))]
    if candidates:
        return candidates[0]
    exists = name in (interface for _, interface in socket.if_nameindex())
    kind = _FAMILY_NAMES[family] if family else "IPv4 or global IPv6"
    problem = f"the interface has no {kind} address" if exists else "this host has no such interface"
    listed = ", ".join(f"{interface} {address}" for interface, address in known)
    raise ConfigError(f"{option}={name}: {problem}; this host has {listed}: choose one of them")


def interface_of(address: str) -> str | None:
    """The name of the interface that has this address; None if no interface of this host has it."""
    return next((interface for interface, known in interface_addresses() if known == address), None)
