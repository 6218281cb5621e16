"""The result of one check: a status, a figure, and what to do."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warning", "failure"]
STATUSES: tuple[Status, ...] = ("ok", "warning", "failure")
"""From good to bad."""
_MAX_MESSAGE = 300


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    figure: str
    """What was found, with its unit."""
    advice: str = ""
    """What to do; empty if there is nothing to do."""
    value: float | None = None
    """The figure as a number, in `unit`; for --json, and for comparisons of hosts."""
    unit: str = ""
    where: str = ""
    """The host, rank or link; empty until the report is put together, for a check of this host."""


def worst(checks: Iterable[Check]) -> Status:
    """The worst status; ok if there are no checks."""
    return max((check.status for check in checks), key=STATUSES.index, default="ok")


def guarded(name: str, run: Callable[[], Check | Iterable[Check]]) -> list[Check]:
    """The results of a check; one that raises is a failure with its exception, and the other checks continue."""
    try:
        result = run()
        return [result] if isinstance(result, Check) else list(result)
    except Exception as e:
        text = " ".join(str(e).split())[:_MAX_MESSAGE]
        return [Check(name, "failure", f"{type(e).__name__}: {text}", "the check could not run")]


def encode(checks: Iterable[Check]) -> str:
    """JSON, for another rank."""
    return json.dumps([asdict(check) for check in checks])


def decode(text: str) -> list[Check]:
    """The checks of another rank."""
    return [Check(**fields) for fields in json.loads(text)]


def in_bytes(count: float) -> str:
    """`24 GB`, `64 MB`: bytes in decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def in_bits(per_s: float) -> str:
    """`9.4 Gbit/s`: bits per second."""
    return f"{per_s / 1e9:.3g} Gbit/s" if per_s >= 1e9 else f"{per_s / 1e6:.3g} Mbit/s"


def in_seconds(seconds: float) -> str:
    """`25 us`, `3.1 ms`, `2 s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
