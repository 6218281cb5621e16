"""The collectives of a step against what the link can do."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import defaultdict
from statistics import median
from typing import Any

from argosy.report.collect import JobRun, cut
from argosy.report.values import dicts, finite, profiles, rounded, text

_MAX_COLLECTIVES = 100
_LARGE = 9
"""The size class, 256 kB, from which on latency hardly counts."""


def communication(run: JobRun) -> dict[str, Any]:
    """Each collective: bytes, times, bandwidth, and the best bandwidth known for such a transfer.

    A collective lasts until the last rank has joined, so its shortest time over the ranks is that of the transfer.
    """
    entries_by_collective: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for profile in profiles(run):
        for entry in dicts(profile.get("collectives")):
            entries_by_collective[text(entry.get("name")), text(entry.get("group"))].append(entry)
    rows: list[dict[str, Any]] = []
    for (name, group), entries in entries_by_collective.items():
        size = max((finite(e.get("bytes")) or 0.0) for e in entries)
        times = {
            key: [v for e in entries if (v := finite(e.get(key))) is not None]
            for key in ("ms", "queue_ms", "wait_ms")
        }
        shortest = min(times["ms"], default=0.0)
        rows.append(
            {
                "name": cut(name, 300),
                "group": cut(group, 100),
                "bytes": int(size),
                "ms": rounded(median(times["ms"])) if times["ms"] else None,
                "shortest_ms": rounded(shortest),
                "queue_ms": rounded(median(times["queue_ms"])) if times["queue_ms"] else None,
                "wait_ms": rounded(median(times["wait_ms"])) if times["wait_ms"] else None,
                "bytes_per_s": rounded(size / shortest * 1000) if shortest and size else None,
            }
        )
    rows.sort(key=lambda row: -(row["ms"] or 0.0))
    num_hosts = len({rank.starts[-1].get("host") for rank in run.ranks.values() if rank.starts})
    reference = _relate_to_link(rows, _doctor_bytes_per_s(run.doctor, max(1, num_hosts)))
    totals = {
        "ms": rounded(sum(row["ms"] or 0.0 for row in rows)),
        "wait_ms": rounded(sum(row["wait_ms"] or 0.0 for row in rows)),
        "bytes": sum(row["bytes"] for row in rows),
    }
    return {"collectives": rows[:_MAX_COLLECTIVES], "totals": totals, "reference": reference}


def size_class(size: int) -> int:
    """Transfers of one class, a factor of four, are expected to reach the same bandwidth."""
    return int(math.log2(max(1, size)) // 2)


def _relate_to_link(rows: list[dict[str, Any]], measured: float) -> str:
    """Set `link_bytes_per_s` and `link_fraction` of each row; returns where the reference comes from.

    A larger transfer should reach what a smaller one reaches: the best of the group up to this size counts, and for
    large transfers what the doctor has `measured`.
    """
    best: dict[tuple[str, int], float] = {}
    for row in rows:
        key = row["group"], size_class(row["bytes"])
        best[key] = max(best.get(key, 0.0), row["bytes_per_s"] or 0.0)
    for row in rows:
        at = size_class(row["bytes"])
        seen = max((rate for (g, c), rate in best.items() if g == row["group"] and c <= at), default=0.0)
        link = max(measured, seen) if measured and at >= _LARGE else seen
        row["link_bytes_per_s"] = rounded(link) if link else None
        row["link_fraction"] = rounded((row["bytes_per_s"] or 0.0) / link) if link else None
    return "doctor" if measured else "profiles"


def _doctor_bytes_per_s(doctor: dict[str, Any] | None, num_hosts: int) -> float:
    """The payload per second of the all-reduce that `fleetrun --doctor --json` measured; 0 if there is none.

    Between hosts that of gloo, whose figure is the traffic of a ring; on one host the better one.
    """
    if doctor is None:
        return 0.0
    ranks = finite(doctor.get("ranks")) or 2.0
    traffic = 2 * (ranks - 1) / ranks if ranks > 1 else 1.0
    rates = [0.0]
    for check in dicts(doctor.get("checks")):
        rate, name = finite(check.get("value")), text(check.get("name"))
        if rate is None or not name.endswith("all-reduce"):
            continue
        if name.startswith("gloo"):
            rates.append(rate / 8 / traffic)
        elif num_hosts == 1:
            rates.append(rate)
    return max(rates)
