"""Ports for the ranks. Rank 0's is bound here and handed over, so that nobody takes it in between."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import errno
import os
import random
import socket
import time

from argosy.engine.errors import ConfigError


def free_ports(address: str, count: int) -> list[int]:
    """Different ports that are free at this moment."""
    taken = [socket.create_server((address, 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in taken]
    for s in taken:
        s.close()
    return ports


def lasting_ports(address: str, count: int) -> list[int]:
    """Free ports that nobody gets by chance while their owner is restarted.

    That is, none of those that the kernel gives to clients: one that knocks at its own host's port, while
    nobody listens there, can be given this very port and then talks to itself.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        low, high = map(int, f.read().split())
    outside = [p for p in range(10_000, 65_536) if not low <= p <= high]
    found: list[int] = []
    for port in random.SystemRandom().sample(outside, len(outside)):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.create_server((address, port)):
            found.append(port)
    return found + free_ports(address, count - len(found))


def listen(address: str, port: int, patience_s: float = 0.0, option: str = "--start_port") -> socket.socket:
    """A socket that listens at exactly this address; 0 is any free port."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_server((address, port), backlog=1024)  # it sets SO_REUSEADDR
        except OSError as e:
            if e.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)  # a killed rank of the run before lets go of it in a moment
                continue
            if e.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"port {port} of {address} is in use{_holder(port)}; end that process or choose another "
                    f"port with {option}"
                ) from e
            raise ConfigError(f"cannot listen at {address}:{port}: {e.strerror}; try another {option}") from e


def _holder(port: int) -> str:
    """' by process 12 (python x.py)', as far as /proc tells."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
    for pid in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else []):
        if inodes & _open_files(pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                return f" by process {pid}"
            return f" by process {pid} ({words[:80]})"
    return ""


def _open_files(pid: str) -> set[str]:
    """What a process has open, as far as we may see it and it does not close it meanwhile."""
    found = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def _inodes(port: int) -> list[str]:
    """The kernel's numbers of the sockets that listen at this port, at any address."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as f:
                rows += [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
    return [row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
