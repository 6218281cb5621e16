"""The network of this host, without its peers: name resolution, interface, ports."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import time
from collections.abc import Collection
from pathlib import Path

from argosy.doctor.check import Check, guarded, in_bits, in_seconds
from argosy.engine.launch.hosts import local_addresses
from argosy.engine.launch.ports import holder
from argosy.engine.net import family_of, interface_of, is_loopback

SLOW_LOOKUP_S = 1.0
"""A job resolves every host's name when it starts, and a lookup that times out takes 5 s."""
FEW_PORTS = 1000
RANK_PORT, SERVER_PORT = 6070, 6170
"""The first default ports of ranks on several hosts, and of parameter servers."""


def name_resolution() -> Check:
    """The address of this host's own name."""
    name, began = socket.gethostname(), time.monotonic()
    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as e:
        return Check(
            "name resolution",
            "warning",
            f"{name}: {e.strerror or e}",
            f"add {name} to /etc/hosts, or write addresses in --ips",
        )
    took_s = time.monotonic() - began
    note = ", which other hosts cannot use" if is_loopback(address.partition("%")[0]) else ""
    figure = f"{name} is {address}{note}"
    if took_s > SLOW_LOOKUP_S:
        return Check(
            "name resolution",
            "warning",
            f"{figure}, after {in_seconds(took_s)}",
            "the name servers in /etc/resolv.conf reply late: correct them, or add the hosts to /etc/hosts",
            took_s,
            "s",
        )
    return Check("name resolution", "ok", figure, value=took_s, unit="s")


def interface(address: str, root: Path = Path("/sys/class/net")) -> Check:
    """The interface of the address at which the other ranks reach those of this host."""
    name = interface_of(address)
    if name is None:
        return Check(
            "interface",
            "failure",
            f"{address} is not an address of this host, which has {', '.join(local_addresses())}",
            "correct --ips, or choose a network with --interface",
        )
    details = [f"MTU {mtu}"] if (mtu := _read(root / name / "mtu")) else []
    if (speed := link_speed(name, root)) is not None:
        details.append(in_bits(speed))
    is_up = _read(root / name / "operstate") in ("up", "unknown", "")  # loopback is unknown
    figure = f"{name} {address}{', ' if details else ''}{', '.join(details)}"
    if not is_up:
        return Check("interface", "failure", f"{figure}, down", f"ip link set {name} up")
    return Check("interface", "ok", figure, value=float(mtu) if mtu else None, unit="MTU")


def link_speed(name: str, root: Path = Path("/sys/class/net")) -> float | None:
    """Bits per second that a physical adapter has negotiated; None for a virtual one, whose figure has no meaning."""
    text = _read(root / name / "speed")
    is_physical = (root / name / "device").exists()
    return int(text) * 1e6 if is_physical and text.isdecimal() and int(text) > 0 else None


def ports(address: str, ranks: int, in_use: Collection[int]) -> list[Check]:
    """Default ports, and the ephemeral range. `in_use`: the ports of this very job."""
    return [*guarded("ports", lambda: _default_ports(address, ranks, in_use)), _ephemeral()]


def _default_ports(address: str, ranks: int, in_use: Collection[int]) -> Check:
    wanted = [*range(RANK_PORT, RANK_PORT + ranks), *range(SERVER_PORT, SERVER_PORT + ranks)]
    taken = [port for port in wanted if port not in in_use and not _is_free(address, port)]
    figure = f"{RANK_PORT} to {RANK_PORT + ranks - 1} and {SERVER_PORT} to {SERVER_PORT + ranks - 1}"
    if taken:
        owners = ", ".join(f"{port}{holder(port)}" for port in taken)
        return Check(
            "ports",
            "warning",
            f"in use: {owners}",
            "end that process, or choose other ports with --start_port, --servers and --workers",
            len(taken),
            "ports",
        )
    return Check("ports", "ok", f"{figure} are free", value=0.0, unit="ports")


def _ephemeral(path: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> Check:
    low, high = map(int, path.read_text().split())
    figure, count = f"{low} to {high}", high - low + 1
    if count < FEW_PORTS:
        return Check(
            "ephemeral ports",
            "warning",
            figure,
            "widen it: sysctl net.ipv4.ip_local_port_range='32768 60999'",
            count,
            "ports",
        )
    return Check("ephemeral ports", "ok", figure, value=count, unit="ports")


def _is_free(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server((address, port), family=family_of(address)):
        return True
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # also: an interface that is down has no speed
        return ""


def check(address: str, ranks: int, in_use: Collection[int]) -> list[Check]:
    """All checks of this host's network."""
    return [
        *guarded("name resolution", name_resolution),
        *guarded("interface", lambda: interface(address)),
        *ports(address, ranks, in_use),
    ]
