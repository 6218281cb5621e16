"""Which host of the job this one is, and the address at which the others reach it."""

# SPDX-License-Identifier: Apache-2.0
import socket

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.net import (
    Endpoint,
    address_of_interface,
    family_of,
    host_of,
    interface_addresses,
    interface_of,
    is_local,
    is_loopback,
    is_numeric,
    local_address,
    resolve,
    without_brackets,
)

_FAMILIES = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
_UNSPECIFIED = ("0.0.0.0", "::")


def addresses(config: Configuration) -> tuple[int, tuple[str, ...]]:
    """This host's index in --ips, and the address of every host; all are of one family."""
    names = [without_brackets(name) for name in config.hosts]
    family = _common_family(names, "--ips")
    resolved = [_resolve(name, family) for name in names]
    index = _index_of_this_host(config, resolved)
    others = [a for i, a in enumerate(resolved) if i != index]
    if others and is_loopback(resolved[index]) and not is_numeric(names[index]):
        # Debian's /etc/hosts maps the host name to 127.0.1.1, which other hosts cannot reach.
        resolved[index] = local_address(others[0])
    if duplicates := {a for a in resolved if resolved.count(a) > 1}:
        raise ConfigError(
            f"--ips={','.join(config.hosts)}: {', '.join(duplicates)} is listed under two names; list each host once"
        )
    return index, tuple(resolved)


def collective_interface(config: Configuration, addresses: tuple[str, ...], index: int) -> str | None:
    """The interface that --interface selects for the collectives of a job with --ips; None if it is not given.

    Raises ConfigError if it has no address of the job's family, or the job has no other host.
    """
    if config.interface is None:
        return None
    if len(addresses) == 1:
        raise ConfigError(
            f"--interface={config.interface}: the ranks of one host use shared memory and the loopback; leave it "
            "out, or list all hosts with --ips"
        )
    address_of_interface(config.interface, family_of(addresses[index]))
    return config.interface


def check_interface(config: Configuration, local: frozenset[str], is_several: bool) -> None:
    """Raise ConfigError if servers and workers of this host are not listed with an address of --interface."""
    if config.interface is None:
        return
    if not is_several:
        raise ConfigError(
            f"--interface={config.interface}: all servers and workers are on this host; leave it out, or list those "
            "of all hosts with --servers and --workers"
        )
    for address in sorted(local):
        expected = address_of_interface(config.interface, family_of(address))
        if interface_of(address) != config.interface:
            raise ConfigError(
                f"--interface={config.interface}, but --servers and --workers have {describe_address(address)} for "
                f"this host; write {expected} there, or leave out --interface"
            )


def describe_address(address: str) -> str:
    """An address of this host with its interface, for the log."""
    return f"{address} (interface {interface_of(address) or 'unknown'})"


def local_endpoints(endpoints: tuple[str, ...], this: str | None) -> tuple[frozenset[str], tuple[str, ...]]:
    """The addresses of the endpoints that are of this host, and the endpoints with names resolved to addresses.

    `this`: the host or address that the user says is this one; without it, all that a socket can be bound to.
    """
    names = [host_of(e) for e in endpoints]
    family = _common_family(names, "--servers and --workers")
    address_of = {name: _resolve(name, family, "--servers and --workers") for name in names}
    remote = [a for a in address_of.values() if not _is_local(a)]
    for name, address in address_of.items():
        if remote and is_loopback(address):
            if is_numeric(name):
                raise ConfigError(
                    f"--servers and --workers: {name} is a loopback address, but {remote[0]} is another "
                    "host; write the address at which the others reach it"
                )
            address_of[name] = local_address(remote[0])
    local = frozenset(a for a in address_of.values() if _is_local(a))
    if this is not None:
        bare = without_brackets(this)
        local = frozenset({address_of.get(bare, bare)}) & local
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
    """The addresses of the network interfaces of this host."""
    return [address for _, address in interface_addresses()]


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


def _common_family(names: list[str], option: str) -> socket.AddressFamily:
    """IPv6 if one of the hosts is an IPv6 address, else IPv4; raises ConfigError if there are addresses of both."""
    families = {family_of(name): name for name in names if is_numeric(name)}
    if len(families) > 1:
        ipv4, ipv6 = families[socket.AF_INET], families[socket.AF_INET6]
        raise ConfigError(
            f"{option}: {ipv4} is an IPv4 address and {ipv6} an IPv6 address; all hosts of a job need addresses of "
            "one family"
        )
    return next(iter(families), socket.AF_INET)


def _resolve(name: str, family: socket.AddressFamily, option: str = "--ips") -> str:
    try:
        return resolve(name, family)
    except (OSError, UnicodeError) as e:
        raise ConfigError(
            f"{option}: {name!r} has no {_FAMILIES[family]} address ({e}); correct it, or write the address"
        ) from e


def _is_local(address: str) -> bool:
    return address not in _UNSPECIFIED and is_local(address)
