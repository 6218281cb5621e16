"""What all parts of the analysis share: values of records that may be malformed, and means over time."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Mapping
from typing import Any

from argosy.report.collect import Bins, JobRun


def finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def rounded(value: float | None) -> float | None:
    """Five significant digits: more would only take space."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def over_time(bins: Mapping[int, Bins]) -> dict[str, Any]:
    """Rows of means with one width of a bin."""
    used = {number: b for number, b in sorted(bins.items()) if b.sums}
    width = max((b.width_s for b in used.values()), default=1.0)
    rows = {number: b.means(width) for number, b in used.items()}
    length = max(map(len, rows.values()), default=0)
    first = min((next(i for i, v in enumerate(row) if v is not None) for row in rows.values()), default=0)
    return {
        "from_s": first * width,
        "width_s": width,
        "names": list(rows),
        "rows": [[*map(rounded, row[first:]), *([None] * (length - len(row)))] for row in rows.values()],
    }


def profiles(run: JobRun) -> list[dict[str, Any]]:
    return [rank.profile for _, rank in sorted(run.ranks.items()) if rank.profile]
