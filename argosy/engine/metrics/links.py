"""The TCP connections of this process to other hosts, as the kernel measures them (TCP_INFO, Linux 4.9).

A connection is busy while it has data that is not acknowledged yet. A sender that waits for its peer to read is limited
by the receiver, not by the link: that time is subtracted. So bytes per busy time is what the link carries, no matter
how seldom it is used.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import stat
import struct
from dataclasses import dataclass, field
from typing import Any

_RESCAN_EVERY = 8
"""Calls between two searches for new connections."""
_RTT, _RETRANSMITS, _ACKED, _BUSY, _RECEIVER_LIMITED, _SIZE = 68, 100, 120, 168, 176, 184
"""Offsets in struct tcp_info (include/uapi/linux/tcp.h), which only grows."""
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_MAX_LINKS = 64
_MIN_BYTES = 1 << 16
"""Connections that have sent less are left out: heartbeats, small messages."""
_Key = tuple[str, str]


@dataclass
class _Totals:
    acked: int
    busy_us: int
    retransmits: int
    rtt_us: int


@dataclass
class LinkMeter:
    """Measures what the connections of this process have sent since the last call."""

    _descriptors: dict[int, tuple[int, _Key]] = field(default_factory=dict)
    """By file descriptor: the inode of the socket, its address and its peer's."""
    _last: dict[int, _Totals] = field(default_factory=dict)
    """By inode."""
    _calls: int = 0

    def take(self) -> list[dict[str, Any]]:
        """By address and peer: `sent_bytes`, `busy_ms`, `rtt_ms`, `retransmits` since the last call."""
        if self._calls % _RESCAN_EVERY == 0:
            self._scan()
        self._calls += 1
        links: dict[_Key, dict[str, Any]] = {}
        for descriptor, (inode, key) in list(self._descriptors.items()):
            totals = _totals(descriptor, inode)
            if totals is None:
                del self._descriptors[descriptor]
                self._last.pop(inode, None)
                continue
            before, self._last[inode] = self._last.get(inode), totals
            if before is None or totals.acked - before.acked < _MIN_BYTES:
                continue
            local, peer = key
            link = links.setdefault(
                key,
                {
                    "local": local,
                    "peer": peer,
                    "sent_bytes": 0,
                    "busy_ms": 0.0,
                    "rtt_ms": 0.0,
                    "retransmits": 0,
                },
            )
            link["sent_bytes"] += totals.acked - before.acked
            link["busy_ms"] = round(link["busy_ms"] + (totals.busy_us - before.busy_us) / 1000, 1)
            link["rtt_ms"] = max(link["rtt_ms"], round(totals.rtt_us / 1000, 2))
            link["retransmits"] += totals.retransmits - before.retransmits
        return sorted(links.values(), key=lambda link: -link["sent_bytes"])[:_MAX_LINKS]

    def _scan(self) -> None:
        """Find the connections to other hosts."""
        self._descriptors.clear()
        for name in os.listdir("/proc/self/fd"):
            try:
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode) and (key := _addresses(int(name))) is not None:
                    self._descriptors[int(name)] = (status.st_ino, key)
            except OSError:
                continue  # closed meanwhile
        alive = {inode for inode, _ in self._descriptors.values()}
        self._last = {inode: totals for inode, totals in self._last.items() if inode in alive}


def _addresses(descriptor: int) -> _Key | None:
    """The addresses of a TCP connection to another host; None for any other socket."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if (
            connection.family not in (socket.AF_INET, socket.AF_INET6)
            or connection.type != socket.SOCK_STREAM
        ):
            return None
        names = (connection.getsockname()[0], connection.getpeername()[0])
        local, peer = (name.removeprefix("::ffff:") for name in names)
        return None if local == peer or peer.startswith("127.") or peer == "::1" else (local, peer)


def _totals(descriptor: int, inode: int) -> _Totals | None:
    """What the kernel has counted; None if the descriptor is another file now."""
    try:
        if os.fstat(descriptor).st_ino != inode:
            return None
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return None
    if len(info) < _SIZE:
        return None
    busy_us = _U64.unpack_from(info, _BUSY)[0] - _U64.unpack_from(info, _RECEIVER_LIMITED)[0]
    return _Totals(
        _U64.unpack_from(info, _ACKED)[0],
        max(0, busy_us),
        _U32.unpack_from(info, _RETRANSMITS)[0],
        _U32.unpack_from(info, _RTT)[0],
    )
