"""Quantities as text: milliseconds, bytes, durations, points in time."""

# SPDX-License-Identifier: Apache-2.0
import time

UNKNOWN = "–"


def number(value: float | None, digits: int = 4) -> str:
    """A number with this many significant digits."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{float(f'{value:.{digits}g}'):g}"


def milliseconds(value: float | None) -> str:
    """`1.25 ms`, `12 s`, `35 µs`."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 10_000:
        return f"{number(value / 1000, 3)} s"
    if 0 < abs(value) < 0.1:
        return f"{number(value * 1000, 2)} µs"
    return f"{value:,.0f} ms" if abs(value) >= 100 else f"{number(value, 3)} ms"


def size(value: float | None) -> str:
    """`1.2 GB`: units of 1000 bytes."""
    if value is None:
        return UNKNOWN
    units = ("B", "kB", "MB", "GB", "TB")
    place = 0
    while abs(value) >= 1000 and place < len(units) - 1:
        value, place = value / 1000, place + 1
    return f"{number(value, 3)} {units[place]}"


def duration(seconds: float | None) -> str:
    """`1 h 3 min`, `4 min 10 s`, `8.2 s`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{number(seconds, 3)} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def percent(fraction: float | None) -> str:
    """`12 %` of a fraction of 0.12."""
    return UNKNOWN if fraction is None else f"{number(100 * fraction, 3 if fraction >= 0.1 else 2)} %"


def moment(at: float | None) -> str:
    """`2026-11-18 05:20:11 UTC`."""
    if at is None:
        return UNKNOWN
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
