"""Slow links, from the connections of all ranks (`links` of the `steps` and `tables` records).

All ranks of a synchronous job wait while one link is slow: neither own times nor exposed times show which one. Bytes
per busy time of the connections do: all connections from and to the host with the slow link have a low rate.

    rate        to a     to b     to c
    from a      -        940      95          c has the slow link: 95 Mbit/s instead of 940
    from b      940      -        95
    from c      95       95       -
"""

# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from argosy.engine.metrics.job_directory import Record

_SLOWER = 1.5
"""A slow link needs at least so many times as long for a byte as the links of other hosts."""
_MIN_BYTES = 1 << 20
"""A rate is measured over at least so many bytes, and so much busy time: the kernel counts it in steps of 4 ms."""
_MIN_BUSY_MS = 40.0
_MIN_BUSY_PART = 0.1
"""A link that is busy for less of the time is not worth a report."""
_MEASURES = 3
"""A link is reported after so many measurements of all its connections, one after another, that say so."""
_ADVICE = "check the cable, switch port and interface of its host; fleetrun --doctor measures every link"


@dataclass
class _ConnectionRates:
    """What one process has sent to a peer since the last measurement."""

    sent: int = 0
    busy_ms: float = 0.0
    wall_s: float = 0.0
    rate: float = 0.0
    """Bits per second while it was busy, at the last measurement; 0: none yet."""
    busy_part: float = 0.0
    measures: int = 0

    def add(self, sent: int, busy_ms: float, wall_s: float) -> None:
        self.sent, self.busy_ms, self.wall_s = self.sent + sent, self.busy_ms + busy_ms, self.wall_s + wall_s
        if self.sent >= _MIN_BYTES and self.busy_ms >= _MIN_BUSY_MS and self.wall_s > 0:
            self.rate = 8000 * self.sent / self.busy_ms
            self.busy_part = self.busy_ms / 1000 / self.wall_s
            self.measures += 1
            self.sent, self.busy_ms, self.wall_s = 0, 0.0, 0.0


@dataclass
class SlowLinks:
    """Finds the host whose link is slower than those of the others; of three hosts or more."""

    _connections: dict[tuple[str, str, str], _ConnectionRates] = field(default_factory=dict)
    """By address of the sender, address of the peer, and process."""
    _ranks: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The ranks at an address."""
    _slow: dict[str, int] = field(default_factory=dict)
    """By address, how many measurements in a row say that its link is slow; negative: that it is not."""
    _seen: dict[str, int] = field(default_factory=dict)
    """By address, the number of measurements at the last decision."""
    _reported: set[str] = field(default_factory=set)

    def update(self, record: Record) -> list[dict[str, Any]]:
        """Add the connections of a record; returns events."""
        if not (links := record.get("links")):
            return []
        wall_s = float(record.get("wall_s") or record.get("interval_s") or 0.0)
        for link in links:
            key = (str(link["local"]), str(link["peer"]), record.process)
            connection = self._connections.setdefault(key, _ConnectionRates())
            connection.add(int(link["sent_bytes"]), float(link["busy_ms"]), wall_s)
            if record.process.startswith("rank"):
                self._ranks[key[0]].add(record.number)
        events = []
        for address in {address for local, peer, _ in self._connections for address in (local, peer)}:
            events += self._check(address, record.time)
        return events

    def _check(self, address: str, now: float) -> list[dict[str, Any]]:
        mine, others = self._measured(address)
        measures = min((connection.measures for connection in mine), default=0)
        if not others or measures <= self._seen.get(address, 0):
            return []
        self._seen[address] = measures
        rate, usual = median(_rates(mine)), median(_rates(others))
        is_slow = usual >= _SLOWER * max(_rates(mine)) and max(c.busy_part for c in mine) >= _MIN_BUSY_PART
        count = self._slow.get(address, 0)
        self._slow[address] = max(1, count + 1) if is_slow else min(-1, count - 1)
        rank = min(self._ranks.get(address) or {-1})
        event = {
            "time": now,
            "role": "rank",
            "rank": rank,
            "cause": "link",
            "because": "",
            "address": address,
        }
        if self._slow[address] == _MEASURES and address not in self._reported:
            self._reported.add(address)
            excess = round(usual / rate - 1, 3)
            whose = f"{address} (rank {_listed(self._ranks.get(address, ()))})"
            facts = f"the link of {whose} carries {_bits(rate)}, those of the other hosts {_bits(usual)}"
            return [event | {"kind": "straggler", "excess": excess, "text": f"{facts}; {_ADVICE}"}]
        if self._slow[address] == -2 * _MEASURES and address in self._reported:
            self._reported.discard(address)
            text = f"the link of {address} carries {_bits(rate)} again"
            return [event | {"kind": "straggler_recovered", "text": text}]
        return []

    def _measured(self, address: str) -> tuple[list[_ConnectionRates], list[_ConnectionRates]]:
        """The connections from and to an address, and all others; those that have carried enough to be measured."""
        mine: list[_ConnectionRates] = []
        others: list[_ConnectionRates] = []
        for (local, peer, _), connection in self._connections.items():
            if connection.measures:
                (mine if address in (local, peer) else others).append(connection)
        return mine, others


def _rates(connections: Iterable[_ConnectionRates]) -> list[float]:
    return [connection.rate for connection in connections]


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks))) or "?"


def _bits(rate: float) -> str:
    return f"{rate / 1e9:.2f} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:.0f} Mbit/s"
