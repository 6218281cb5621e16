"""The collectives of a step against what the link can do."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import defaultdict
from statistics import median
from typing import Any

from argosy.report.collect import Run, cut
from argosy.report.values import dicts, finite, profiles, rounded, text

_MAX_COLLECTIVES = 100


def communication(run: Run) -> dict[str, Any]:
    """Each collective: bytes, times, bandwidth, and the best bandwidth known for such a transfer.

    A collective lasts until the last rank has joined, so its shortest time over the ranks is that of the transfer.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for profile in profiles(run):
        for entry in dicts(profile.get("collectives")):
            found[text(entry.get("name")), text(entry.get("group"))].append(entry)
    rows: list[dict[str, Any]] = []
    for (name, group), entries in found.items():
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
    reference = _relate_to_link(rows, run.doctor)
    totals = {
        "ms": rounded(sum(row["ms"] or 0.0 for row in rows)),
        "wait_ms": rounded(sum(row["wait_ms"] or 0.0 for row in rows)),
        "bytes": sum(row["bytes"] for row in rows),
    }
    return {"collectives": rows[:_MAX_COLLECTIVES], "totals": totals, "reference": reference}


def size_class(size: int) -> int:
    """Transfers of one class, a factor of four, are expected to reach the same bandwidth."""
    return int(math.log2(max(1, size)) // 2)


def _relate_to_link(rows: list[dict[str, Any]], doctor: dict[str, Any] | None) -> str:
    """Set `link_bytes_per_s` and `link_fraction` of each row; returns where the reference comes from.

    A smaller transfer may not do better than a larger one: the best of its group up to this size counts.
    """
    measured = _doctor_bytes_per_s(doctor)
    best: dict[tuple[str, int], float] = {}
    for row in rows:
        key = row["group"], size_class(row["bytes"])
        best[key] = max(best.get(key, 0.0), row["bytes_per_s"] or 0.0)
    for row in rows:
        at = size_class(row["bytes"])
        seen = max((rate for (g, c), rate in best.items() if g == row["group"] and c <= at), default=0.0)
        link = max(measured, seen) if measured and size_class(row["bytes"]) >= 9 else seen
        row["link_bytes_per_s"] = rounded(link) if link else None
        row["link_fraction"] = rounded((row["bytes_per_s"] or 0.0) / link) if link else None
    return "doctor" if measured else "profiles"


def _doctor_bytes_per_s(doctor: dict[str, Any] | None) -> float:
    """The best all-reduce that the doctor measured; 0 if it measured none.

    The numbers are searched by name, so that a later version of the file still says something.
    """
    best = 0.0
    stack: list[tuple[str, Any]] = [("", doctor or {})]
    for _ in range(10_000):
        if not stack:
            break
        key, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{key}.{k}", v) for k, v in value.items()]
        elif isinstance(value, list):
            stack += [(key, v) for v in value]
        elif key.endswith("bytes_per_s") and "all_reduce" in key and (number := finite(value)) is not None:
            best = max(best, number)
    return best
