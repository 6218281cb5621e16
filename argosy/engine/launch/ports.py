"""Ports for the ranks. Rank 0's is bound here and inherited, so that no other process takes it in between."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import errno
import os
import random
import socket
import time

from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint, family_of


def free_ports(address: str, count: int) -> list[int]:
    """Distinct ports that are free now."""
    try:
        with contextlib.ExitStack() as open_sockets:
            family = family_of(address)
            bound = [
                open_sockets.enter_context(socket.create_server((address, 0), family=family))
                for _ in range(count)
            ]
            return [s.getsockname()[1] for s in bound]
    except OSError as e:
        raise ConfigError(
            f"cannot find {count} free ports at {address} ({e.strerror}); use fewer processes, or see ulimit -n"
        ) from e


def stable_ports(address: str, count: int) -> list[int]:
    """Free ports outside of the ephemeral range, which stay free while their owner is restarted.

    A client that connects to an ephemeral port of its own host, while no process listens there, can be assigned this
    very port as its source port, and is then connected to itself.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        low, high = map(int, f.read().split())
    outside = [p for p in range(10_000, 65_536) if not low <= p <= high]
    free: list[int] = []
    # Not all of them: to draw 20,000 numbers takes 50 ms.
    for port in random.SystemRandom().sample(outside, min(len(outside), 100 + 4 * count)):
        if len(free) == count:
            break
        with contextlib.suppress(OSError), socket.create_server((address, port), family=family_of(address)):
            free.append(port)
    return free + free_ports(address, count - len(free))


def listen(address: str, port: int, timeout_s: float = 0.0, option: str = "--start_port") -> socket.socket:
    """A socket that listens on exactly this address; port 0 is any free port.

    Retries a port that is in use for `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            # It sets SO_REUSEADDR, and IPV6_V6ONLY.
            return socket.create_server((address, port), family=family_of(address), backlog=1024)
        except OSError as e:
            if e.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)  # a killed rank of the previous attempt releases it soon
                continue
            if e.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"port {port} of {address} is in use{holder(port)}; stop that process or choose another "
                    f"port with {option}"
                ) from e
            raise ConfigError(
                f"cannot listen on {Endpoint(address, port)}: {e.strerror}; try another {option}"
            ) from e


def holder(port: int) -> str:
    """' by process 12 (python x.py)', if /proc shows it, else empty."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
    for pid in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else []):
        if inodes & _open_files(pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                return f" by process {pid}"
            return f" by process {pid} ({command[:80]})"
    return ""


def _open_files(pid: str) -> set[str]:
    """The open files of a process, without those that may not be read or are closed meanwhile."""
    files = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                files.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return files


def _inodes(port: int) -> list[str]:
    """The inodes of the sockets that listen on this port, at any address."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as f:
                rows += [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
    return [row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
