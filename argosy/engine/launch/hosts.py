"""Which of the hosts of a job this one is, and at which address the others reach it."""

# SPDX-License-Identifier: Apache-2.0
import fcntl
import socket
import struct

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

_SIOCGIFADDR = 0x8915


def addresses(config: Configuration) -> tuple[int, tuple[str, ...]]:
    """This host's index in --ips, and the IPv4 address of every host."""
    resolved = [_resolve(name) for name in config.ips]
    index = _index_of_this_host(config, resolved)
    others = [a for i, a in enumerate(resolved) if i != index]
    if others and _is_loopback(resolved[index]) and not _is_number(config.ips[index]):
        # Debian's /etc/hosts maps a host's own name to 127.0.1.1, where nobody else finds it.
        resolved[index] = _address_towards(others[0])
    if doubled := {a for a in resolved if resolved.count(a) > 1}:
        raise ConfigError(f"--ips={','.join(config.ips)}: {', '.join(doubled)} is there under two names")
    return index, tuple(resolved)


def own_of(endpoints: tuple[str, ...], this: str | None) -> tuple[frozenset[str], tuple[str, ...]]:
    """Which addresses of the endpoints are this host, and the endpoints with IPv4 addresses.

    `this`: the host or address that was said to be this one; without it, all where a socket can be bound.
    """
    names = [e.rpartition(":")[0] for e in endpoints]
    address_of = {name: _resolve(name, "--servers and --workers") for name in names}
    strangers = [a for a in address_of.values() if not _is_own(a)]
    for name, address in address_of.items():
        if strangers and _is_loopback(address):
            if _is_number(name):
                raise ConfigError(
                    f"--servers and --workers: {name} means each host itself, but {strangers[0]} is "
                    "another one; write the address at which the others reach it"
                )
            address_of[name] = _address_towards(strangers[0])
    own = frozenset(a for a in address_of.values() if _is_own(a))
    if this is not None:
        own = frozenset({address_of.get(this, this)}) & own
    if not own:
        there, here = ", ".join(dict.fromkeys(names)), ", ".join(own_addresses())
        found = f"{this} (POD_IP or --host) is not" if this else "none of them is"
        raise ConfigError(
            f"--servers and --workers name {there}: {found} an address of this host, which has {here}; "
            "correct the lists, or say which one it is with --host"
        )
    return own, tuple(
        f"{address_of[n]}:{e.rpartition(':')[2]}" for n, e in zip(names, endpoints, strict=True)
    )


def own_addresses() -> list[str]:
    """The IPv4 address of each network interface of this host."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(s, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an IPv4 address
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _index_of_this_host(config: Configuration, resolved: list[str]) -> int:
    if config.host is not None:
        index = config.ips.index(config.host)
        if not _is_own(resolved[index]):
            raise _which_host(config, f"--host={config.host} is not an address of this host")
        return index
    own = [i for i, address in enumerate(resolved) if _is_own(address)]
    if not own:
        raise _which_host(config, "this host is not among them")
    if len(own) > 1:
        names = ", ".join(config.ips[i] for i in own)
        raise _which_host(config, f"several of them are this host ({names})")
    return own[0]


def _which_host(config: Configuration, problem: str) -> ConfigError:
    return ConfigError(
        f"--ips={','.join(config.ips)}: {problem}; this host has {', '.join(own_addresses())} "
        f"({socket.gethostname()}): correct --ips, or say which one it is with --host"
    )


def _resolve(name: str, option: str = "--ips") -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as e:
        raise ConfigError(
            f"{option}: {name!r} has no IPv4 address ({e}); correct it, or write the number"
        ) from e


def _is_own(address: str) -> bool:
    """True if a socket can be bound there: no list of interfaces knows it better than the kernel."""
    if address == "0.0.0.0":
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.bind((address, 0))
        except OSError:
            return False
    return True


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")


def _is_number(name: str) -> bool:
    return name.replace(".", "").isdecimal()


def _address_towards(other: str) -> str:
    """The address that this host shows to another one; the kernel's routes decide, no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect((other, 9))
        except OSError as e:
            raise ConfigError(f"there is no route to {other} ({e}); check the network") from e
        return str(s.getsockname()[0])
