"""Which host of the job this one is, and the address at which the others reach it."""

# SPDX-License-Identifier: Apache-2.0
import fcntl
import socket
import struct

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.net import Endpoint, host_of, is_local, is_loopback, local_address

_SIOCGIFADDR = 0x8915


def addresses(config: Configuration) -> tuple[int, tuple[str, ...]]:
    """This host's index in --ips, and the IPv4 address of every host."""
    resolved = [_resolve(name) for name in config.hosts]
    index = _index_of_this_host(config, resolved)
    others = [a for i, a in enumerate(resolved) if i != index]
    if others and is_loopback(resolved[index]) and not _is_numeric(config.hosts[index]):
        # Debian's /etc/hosts maps the host name to 127.0.1.1, which other hosts cannot reach.
        resolved[index] = local_address(others[0])
    if duplicates := {a for a in resolved if resolved.count(a) > 1}:
        raise ConfigError(
            f"--ips={','.join(config.hosts)}: {', '.join(duplicates)} is listed under two names; list each host once"
        )
    return index, tuple(resolved)


def local_endpoints(endpoints: tuple[str, ...], this: str | None) -> tuple[frozenset[str], tuple[str, ...]]:
    """The addresses of the endpoints that are of this host, and the endpoints with names resolved to IPv4 addresses.

    `this`: the host or address that the user says is this one; without it, all that a socket can be bound to.
    """
    names = [host_of(e) for e in endpoints]
    address_of = {name: _resolve(name, "--servers and --workers") for name in names}
    remote = [a for a in address_of.values() if not _is_local(a)]
    for name, address in address_of.items():
        if remote and is_loopback(address):
            if _is_numeric(name):
                raise ConfigError(
                    f"--servers and --workers: {name} is a loopback address, but {remote[0]} is another "
                    "host; write the address at which the others reach it"
                )
            address_of[name] = local_address(remote[0])
    local = frozenset(a for a in address_of.values() if _is_local(a))
    if this is not None:
        local = frozenset({address_of.get(this, this)}) & local
    if not local:
        listed, here = ", ".join(dict.fromkeys(names)), ", ".join(local_addresses())
        problem = f"{this} (POD_IP or --host) is not" if this else "none of them is"
        raise ConfigError(
            f"--servers and --workers have {listed}: {problem} an address of this host, which has {here}; "
            "correct the lists, or select this host with --host"
        )
    return local, tuple(
        str(Endpoint(address_of[n], Endpoint.parse(e).port)) for n, e in zip(names, endpoints, strict=True)
    )


def local_addresses() -> list[str]:
    """The IPv4 address of each network interface of this host."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an IPv4 address
            addresses.append(socket.inet_ntoa(reply[20:24]))
    return addresses


def _index_of_this_host(config: Configuration, resolved: list[str]) -> int:
    if config.host is not None:
        index = config.hosts.index(config.host)
        if not _is_local(resolved[index]):
            raise _ambiguous_host(config, f"--host={config.host} is not an address of this host")
        return index
    local = [i for i, address in enumerate(resolved) if _is_local(address)]
    if not local:
        raise _ambiguous_host(config, "this host is not among them")
    if len(local) > 1:
        names = ", ".join(config.hosts[i] for i in local)
        raise _ambiguous_host(config, f"several of them are this host ({names})")
    return local[0]


def _ambiguous_host(config: Configuration, problem: str) -> ConfigError:
    return ConfigError(
        f"--ips={','.join(config.hosts)}: {problem}; this host has {', '.join(local_addresses())} "
        f"({socket.gethostname()}): correct --ips, or select this host with --host"
    )


def _resolve(name: str, option: str = "--ips") -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as e:
        raise ConfigError(
            f"{option}: {name!r} has no IPv4 address ({e}); correct it, or write the address"
        ) from e


def _is_local(address: str) -> bool:
    return address != "0.0.0.0" and is_local(address)


def _is_numeric(name: str) -> bool:
    return name.replace(".", "").isdecimal()
