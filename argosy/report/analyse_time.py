"""Curves, step times, where the time of a step goes, and stragglers."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

from argosy.engine.metrics.job_view import Series, phases
from argosy.report.collect import JobRun, RankRun, bucket_ms, cut
from argosy.report.values import dicts, finite, over_time, profiles, rounded, text

PHASES = ("forward", "backward", "optimize", "communicate", "exposed", "other")
STRAGGLER = 1.1
"""A rank whose own time is so many times that of the median rank is a straggler."""
_MAX_CURVES = 40
_MAX_POINTS = 1000
_MAX_NODES = 200


def shown(run: JobRun) -> list[tuple[str, Series]]:
    return list(run.view.values.items())[:_MAX_CURVES]


def curves(run: JobRun) -> list[dict[str, Any]]:
    """The watched values and the rate over steps."""
    curves = [_curve(name, series, "value") for name, series in shown(run) if series.values]
    if run.view.examples_per_s.values:
        curves.append(_curve("examples/s", run.view.examples_per_s, "rate"))
    first = run.view.ranks.get(min(run.view.ranks, default=0))
    if first is not None and first.history.values:
        curves.append(_curve("step time, ms", first.history, "step"))
    return curves


def _curve(name: str, series: Series, kind: str) -> dict[str, Any]:
    stride = math.ceil(len(series.steps) / _MAX_POINTS)
    steps, values = series.steps[::stride], [finite(v) for v in series.values[::stride]]
    if stride > 1 and steps[-1] != series.steps[-1]:
        steps, values = [*steps, series.steps[-1]], [*values, finite(series.values[-1])]
    known = [v for v in map(finite, series.values) if v is not None]
    return {
        "name": cut(name, 200),
        "kind": kind,
        "reduce": series.reduce,
        "steps": steps,
        "values": [rounded(v) for v in values],
        "not_finite_at": None if (place := first_not_finite(series)) is None else series.steps[place],
        "first": finite(series.values[0]),
        "last": finite(series.values[-1]),
        "min": min(known, default=None),
        "max": max(known, default=None),
        "mean": math.fsum(known) / len(known) if known else None,
    }


def first_not_finite(series: Series) -> int | None:
    """The index of the first NaN or infinity."""
    return next((i for i, v in enumerate(series.values) if not math.isfinite(v)), None)


def steps(run: JobRun) -> dict[str, Any]:
    """The step time by rank over time."""
    means = over_time({n: r.period for n, r in run.ranks.items()})
    histogram: Counter[int] = Counter()
    for rank in run.ranks.values():
        histogram.update(rank.periods)
    quantiles = {f"p{round(q * 100)}": quantile(histogram, q) for q in (0.01, 0.5, 0.9, 0.99)}
    return means | {"quantiles": quantiles | {"max": quantile(histogram, 1.0)}}


def breakdown(run: JobRun) -> dict[str, Any]:
    """Per rank: from step to step (means of all steps), and inside of a step (medians of the sampled ones)."""
    periods, inside = [], []
    for number, rank in sorted(run.ranks.items()):
        if rank.steps:
            means = {key: rank.per_step[key] / rank.steps for key in rank.per_step}
            periods.append(
                {
                    "rank": number,
                    "steps": rank.steps * run.thin,
                    "period_ms": rounded(means["period_ms"]),
                    "computation": rounded(means["busy_ms"]),
                    "blocked": rounded(means["exposed_ms"]),
                    "script": rounded(max(0.0, means["outside_ms"] - means["input_ms"])),
                    "input": rounded(means["input_ms"]),
                }
            )
        if (times := _sampled(rank)) is not None:
            inside.append({"rank": number, "samples": len(rank.samples), **times})
    return {"periods": periods, "inside": inside, "phases": list(PHASES)}


def _sampled(rank: RankRun) -> dict[str, float | None] | None:
    """The median milliseconds of each phase; None without samples."""
    rows: list[dict[str, Any]] = []
    for sample in rank.samples:
        try:
            rows.append(phases(sample))
        except (TypeError, ValueError):
            continue
    if not rows:
        return None
    return {phase: rounded(median(row[phase] for row in rows)) for phase in PHASES}


def stragglers(run: JobRun) -> dict[str, Any]:
    """Each rank's own time against the median rank's, with what may explain it; and the events."""
    rows: list[dict[str, Any]] = []
    for number, rank in sorted(run.ranks.items()):
        busy, outside, exposed = (rank.mean_ms(k) for k in ("busy_ms", "outside_ms", "exposed_ms"))
        if busy is None:
            continue
        wall = rank.counts["wall_s"]
        mhz = [v for v in rank.mhz.means() if v is not None]
        rows.append(
            {
                "rank": number,
                "host": text(rank.starts[-1].get("host")) if rank.starts else "",
                "own_ms": busy + (outside or 0.0),
                "busy_ms": busy,
                "input_ms": rank.mean_ms("input_ms"),
                "outside_ms": outside,
                "blocked_ms": exposed,
                "cpu": rank.counts["cpu_s"] / wall if wall else None,
                "delay": rank.counts["delay_s"] / wall if wall else None,
                "major_faults_per_s": rank.counts["major_faults"] / wall if wall else None,
                "preempted_per_s": rank.counts["preempted"] / wall if wall else None,
                "mhz": median(mhz) if mhz else None,
            }
        )
    _relate(rows)
    slow = [row for row in rows if (row["relative"] or 0.0) >= STRAGGLER]
    return {
        "ranks": [{k: rounded(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows],
        "slow": [_describe(row, rows) for row in sorted(slow, key=lambda row: -row["relative"])[:5]],
        "events": [
            {"time": finite(e.get("time")), "rank": e.get("rank"), "text": cut(e.get("text") or "", 500)}
            for e in run.view.events
            if str(e.get("kind", "")).startswith("straggler")
        ][-50:],
    }


def _relate(rows: list[dict[str, Any]]) -> None:
    middle = median(row["own_ms"] for row in rows) if len(rows) > 1 else 0.0
    if len(rows) == 2:  # the median of two is between them
        middle = min(row["own_ms"] for row in rows)
    for row in rows:
        row["relative"] = row["own_ms"] / middle if middle else None


def _describe(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the slow rank spends more of than the median rank, and what may explain it."""

    def more(key: str) -> float:
        return float((row[key] or 0.0) - median((r[key] or 0.0) for r in rows if r is not row))

    script = more("outside_ms") - more("input_ms")
    parts = {"computation": more("busy_ms"), "input": more("input_ms"), "the script between steps": script}
    cause = max(parts, key=lambda part: parts[part])
    hints = []
    if cause == "computation":
        if more("delay") > 0.05:
            hints.append(
                f"it was ready but had no core for {row['delay']:.0%} of the time: other load on its host"
            )
        if more("major_faults_per_s") > 10:
            hints.append(
                f"{row['major_faults_per_s']:.0f} major page faults per second: its host reads pages from disk"
            )
        others = [r["mhz"] for r in rows if r is not row and r["mhz"]]
        if row["mhz"] and others and row["mhz"] < 0.93 * median(others):
            hints.append(f"its core runs at {row['mhz']:.0f} MHz, the others at {median(others):.0f}")
        if not hints:
            hints.append("no other load, page faults or frequency explain it: compare its input and its host")
    elif cause == "input":
        hints.append("its loader had no batch ready: more reader processes, or a faster disk on its host")
    else:
        hints.append("time between two calls of Executor.run: evaluation, logging, or preparing feeds")
    return {
        "rank": row["rank"],
        "relative": rounded(row["relative"]),
        "cause": cause,
        "more_ms": rounded(parts[cause]),
        "hints": hints,
    }


def nodes(run: JobRun) -> dict[str, Any]:
    """Where the time goes in the program: by op and by source line; medians over the ranks of sums."""
    by_op: dict[str, list[float]] = defaultdict(list)
    by_source: dict[str, list[float]] = defaultdict(list)
    longest: dict[str, dict[str, Any]] = {}
    for profile in profiles(run):
        ops: Counter[str] = Counter()
        sources: Counter[str] = Counter()
        for node in dicts(profile.get("nodes")):
            ms = finite(node.get("ms")) or 0.0
            ops[f"{text(node.get('op'))} · {text(node.get('role'))}"] += ms  # type: ignore[assignment]
            sources[text(node.get("source")) or "unknown"] += ms  # type: ignore[assignment]
            name = cut(text(node.get("name")), 200)
            entry = longest.setdefault(name, {"name": name, "ms": []})
            entry["ms"].append(ms)
            for key in ("op", "role", "source"):
                entry[key] = cut(text(node.get(key)), 300)
        for key, value in ops.items():
            by_op[key].append(value)
        for key, value in sources.items():
            by_source[key].append(value)
    nodes = sorted(({**n, "ms": median(n["ms"])} for n in longest.values()), key=lambda n: -n["ms"])
    return {
        "by_op": _top(by_op),
        "by_source": _top(by_source),
        "longest": [{**n, "ms": rounded(n["ms"])} for n in nodes[:50]],
    }


def _top(times: Mapping[str, list[float]]) -> list[list[Any]]:
    rows = sorted(((cut(key, 300), median(values)) for key, values in times.items()), key=lambda row: -row[1])
    return [[key, rounded(ms)] for key, ms in rows[:_MAX_NODES] if ms]


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """A quantile of step times, within 0.5 %; None without steps."""
    left = q * sum(histogram.values())
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 0:
            return bucket_ms(bucket)
    return None
