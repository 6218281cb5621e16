"""Two runs side by side: what differs in their settings, where the time and the memory differ, and a sentence for it.

A is the earlier run, the baseline; differences are B minus A.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Iterable, Mapping
from typing import Any

from argosy.report import units

FORMAT, VERSION = "argosy.report.comparison", 1
NOISE = 0.02
"""Step times that differ by less are reported as equal."""
_MAX_ROWS = 100
_PERIOD_PARTS = ("computation", "blocked", "script", "input")
_PARTS_AS_TEXT = {
    "computation": "computation",
    "blocked": "time blocked on other processes",
    "script": "time in the script between steps",
    "input": "waiting for input",
}
_PHASES_AS_TEXT = {
    "exposed": "time blocked on collectives",
    "communicate": "the overhead of starting collectives",
    "optimize": "the optimizer",
    "other": "time outside of all nodes",
}


def compare(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The comparison of two analyses."""
    phases = _phases(a, b)
    differing = _settings(a, b)
    return {
        "format": FORMAT,
        "version": VERSION,
        "sentence": _sentence(a, b, phases, differing),
        "figures": _figures(a, b),
        "settings": differing,
        "phases": phases,
        "nodes": _times(a["nodes"]["by_source"], b["nodes"]["by_source"]),
        "ops": _times(a["nodes"]["by_op"], b["nodes"]["by_op"]),
        "collectives": _collectives(a, b),
        "memory": _memory(a, b),
        "curves": _curves(a, b),
    }


# --- settings -----------------------------------------------------------------------------------------


def _settings(a: dict[str, Any], b: dict[str, Any]) -> list[list[str]]:
    """Name, value of A, value of B: of what differs."""
    first, second = dict(_described(a)), dict(_described(b))
    names = list(dict.fromkeys((*first, *second)))
    return [
        [name, first.get(name, "default"), second.get(name, "default")]
        for name in names
        if first.get(name, "") != second.get(name, "")
    ]


def _described(run: dict[str, Any]) -> Iterable[tuple[str, str]]:
    yield "script", run["job"]["script"]
    yield "command", run["job"]["command"]
    yield "ranks", str(run["figures"]["ranks"])
    yield "servers", str(run["figures"]["servers"])
    yield "hosts", ", ".join(sorted({str(p.get("host") or "") for p in run["processes"]} - {""}))
    yield "threads", ", ".join(sorted({str(p["threads"]) for p in run["processes"] if p.get("threads")}))
    for key, value in run["job"]["versions"].items():
        yield f"version of {key}", value
    for key, value in run["job"]["options"].items():
        if key != "log_dir":  # two runs have two directories
            yield f"--{key}", value
    yield "strategy", run["strategy"]["text"]
    for key, value in run["strategy"]["settings"].items():
        yield f"strategy.{key}", value


# --- numbers ------------------------------------------------------------------------------------------


def _figures(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[tuple[str, str, float | None, float | None, int]] = [
        ("step time, median", "ms", *_both(a, b, "step_ms"), -1),
        ("step time, 99th percentile", "ms", *_both(a, b, "step_p99_ms"), -1),
        ("examples per second", "number", *_both(a, b, "examples_per_s"), 1),
        ("exposed share of a step", "fraction", *_both(a, b, "exposed_fraction"), -1),
        ("sent per step and rank", "bytes", _sent(a), _sent(b), -1),
        ("peak resident memory of a rank", "bytes", *_both(a, b, "peak_rss"), -1),
        ("steps", "integer", *_both(a, b, "step"), 0),
        ("duration", "s", a["job"]["duration_s"], b["job"]["duration_s"], 0),
    ]
    values = {**a["figures"]["values"], **b["figures"]["values"]}
    for name in list(values)[:20]:
        rows.append((f"last {name}", "number", *(run["figures"]["values"].get(name) for run in (a, b)), 0))
    return [
        {
            "name": name,
            "unit": unit,
            "a": first,
            "b": second,
            "better": better,
            "change": _change(first, second),
        }
        for name, unit, first, second, better in rows
        if first is not None or second is not None
    ]


def _both(a: dict[str, Any], b: dict[str, Any], key: str) -> tuple[float | None, float | None]:
    return a["figures"][key], b["figures"][key]


def _sent(run: dict[str, Any]) -> float | None:
    steps = sum(row["steps"] for row in run["breakdown"]["periods"])
    return run["figures"]["sent_bytes"] / steps if steps else None


def _change(first: float | None, second: float | None) -> float | None:
    """B / A - 1; None where that says nothing."""
    if first is None or second is None or not first or first < 0:
        return None
    return second / first - 1


def _phases(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Means over the ranks in ms, from step to step and inside of a step."""
    inside = a["breakdown"]["phases"]
    return {
        "periods": [_phase(part, a, b, "periods") for part in _PERIOD_PARTS],
        "inside": [_phase(part, a, b, "inside") for part in inside],
    }


def _phase(part: str, a: dict[str, Any], b: dict[str, Any], table: str) -> dict[str, Any]:
    first, second = (_mean(row[part] for row in run["breakdown"][table]) for run in (a, b))
    difference = None if first is None or second is None else second - first
    return {"name": part, "a": first, "b": second, "difference": difference}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _times(first: list[list[Any]], second: list[list[Any]]) -> list[dict[str, Any]]:
    """Rows of nodes, the largest difference first."""
    return _differences(dict(map(tuple, first)), dict(map(tuple, second)))


def _differences(first: Mapping[str, float], second: Mapping[str, float]) -> list[dict[str, Any]]:
    if not first or not second:
        return []
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "a": first.get(name),
            "b": second.get(name),
            "difference": (second.get(name) or 0.0) - (first.get(name) or 0.0),
        }
        for name in dict.fromkeys((*first, *second))
    ]
    return sorted(rows, key=lambda row: -abs(row["difference"]))[:_MAX_ROWS]


def _collectives(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    def totals(run: dict[str, Any]) -> dict[str, Any]:
        rows = run["communication"]["collectives"]
        return {"number": len(rows), **run["communication"]["totals"]}

    return {"a": totals(a), "b": totals(b)}


def _memory(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    first, second = _memory_parts(a), _memory_parts(b)
    order = list(dict.fromkeys((*first, *second)))
    return sorted(_differences(first, second), key=lambda row: order.index(row["name"]))


def _memory_parts(run: dict[str, Any]) -> dict[str, float]:
    rows = run["memory"]["ranks"]
    parts: dict[str, float] = {}
    if run["figures"]["peak_rss"]:
        parts["peak resident memory"] = run["figures"]["peak_rss"]
    largest = next((row for row in rows if row["rank"] == run["memory"]["largest_rank"]), None)
    if largest is not None and largest["peak_bytes"]:
        parts["peak of a step"] = largest["peak_bytes"]
        parts |= {f"of it: {name}": value for name, value in largest["breakdown"].items()}
    return parts


def _curves(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """The curves that both runs have, then those of one."""
    first, second = ({curve["name"]: curve for curve in run["curves"]} for run in (a, b))
    names = sorted(dict.fromkeys((*first, *second)), key=lambda name: not (name in first and name in second))
    return [
        {
            "name": name,
            "kind": (first.get(name) or second[name])["kind"],
            **{
                letter: {"steps": run[name]["steps"], "values": run[name]["values"]} if name in run else None
                for letter, run in (("a", first), ("b", second))
            },
        }
        for name in names
    ]


# --- the sentence -------------------------------------------------------------------------------------


def _sentence(a: dict[str, Any], b: dict[str, Any], phases: dict[str, Any], settings: list[list[str]]) -> str:
    """What changed most."""
    ended = [f"{letter} {_ended(run)}" for letter, run in (("A", a), ("B", b)) if run["failure"]]
    if ended:
        return f"{' and '.join(ended)}. {_speed(a, b, phases)}{_because(settings)}".strip()
    return f"{_speed(a, b, phases)}{_because(settings)}".strip()


def _ended(run: dict[str, Any]) -> str:
    return f"failed ({run['failure']['advice']['kind']})"


def _speed(a: dict[str, Any], b: dict[str, Any], phases: dict[str, Any]) -> str:
    first, second = a["figures"]["step_ms"], b["figures"]["step_ms"]
    if not first or not second:
        missing = " and ".join(letter for letter, ms in (("A", first), ("B", second)) if not ms)
        return f"The step times cannot be compared: {missing} made no step after its warm-up. "
    change = second / first - 1
    if abs(change) < NOISE:
        return (
            f"The step time is the same within {NOISE:.0%} ({units.milliseconds(first)} in A, "
            f"{units.milliseconds(second)} in B). "
        )
    text = (
        f"A step of B takes {abs(change):.0%} {'less' if change < 0 else 'more'} time than one of A "
        f"(median {units.milliseconds(first)} → {units.milliseconds(second)})"
    )
    return f"{text}{_most(phases, change)}{_uneven(a, b, change)}. "


def _most(phases: dict[str, Any], change: float) -> str:
    """The phase with the largest difference in the direction of the change: of sampled steps, else of all steps."""
    inside = {row["name"]: row["difference"] for row in phases["inside"] if row["difference"] is not None}
    periods = {row["name"]: row["difference"] for row in phases["periods"] if row["difference"] is not None}
    parts = {_PARTS_AS_TEXT[name]: periods[name] for name in ("script", "input") if name in periods}
    if inside:
        parts |= {_PHASES_AS_TEXT.get(name, name): ms for name, ms in inside.items()}
    else:
        parts |= {
            _PARTS_AS_TEXT[name]: periods[name] for name in ("computation", "blocked") if name in periods
        }
    same_way = {name: ms for name, ms in parts.items() if ms * change > 0}
    if not same_way:
        return ""
    most = max(same_way, key=lambda name: abs(same_way[name]))
    return f"; most of it is {most} ({_signed(same_way[most])})"


def _uneven(a: dict[str, Any], b: dict[str, Any], change: float) -> str:
    """A note if the mean says something else than the median."""
    first, second = a["figures"]["mean_step_ms"], b["figures"]["mean_step_ms"]
    mean = second / first - 1 if first and second else change
    return f"; the mean differs by {mean:+.0%}: the steps are uneven" if abs(mean - change) > 0.1 else ""


def _signed(ms: float) -> str:
    return f"{'+' if ms > 0 else '−'}{units.milliseconds(abs(ms))} per step"


def _because(settings: list[list[str]]) -> str:
    """The differing settings that may explain it."""
    named = [
        row
        for row in settings
        if row[0].startswith(("strategy.", "--", "version", "ranks", "threads", "hosts"))
    ]
    if not named:
        return "The settings are the same." if not settings else ""
    shown = "; ".join(f"{name}: {_short(old)} → {_short(new)}" for name, old, new in named[:4])
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return f"Settings that differ: {shown}{more}."


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
