"""From a run to the numbers of the report: plain dicts and lists, which the page embeds and `--json` prints.

All of them are finite or None, and bounded in number.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from argosy.engine.metrics.job_view import Series, phases
from argosy.report.collect import Bins, RankRun, Run, bucket_ms, cut
from argosy.report.failure import find_failure

FORMAT, VERSION = "argosy.report", 1
PHASES = ("forward", "backward", "optimize", "communicate", "exposed", "other")
STRAGGLER = 1.1
"""A rank whose own time is so many times that of the median rank is a straggler."""
_MAX_CURVES = 40
_MAX_POINTS = 1000
_MAX_COLLECTIVES = 100
_MAX_NODES = 200
_MAX_EVENTS = 300


def analyse(run: Run) -> dict[str, Any]:
    """All sections of the report."""
    failure = find_failure(run)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": run.name,
        "state": "abandoned" if run.is_stale else str(run.job.get("state") or "unknown"),
        "failure": None if failure is None else failure.as_dict(),
        "job": _job(run),
        "figures": _figures(run),
        "processes": _processes(run),
        "strategy": _strategy(run),
        "curves": _curves(run),
        "steps": _steps(run),
        "breakdown": _breakdown(run),
        "stragglers": _stragglers(run),
        "nodes": _nodes(run),
        "communication": _communication(run),
        "memory": _memory(run),
        "servers": _servers(run),
        "events": _events(run),
        "outputs": [
            {"name": o.name, "log": o.log, "lines": o.lines, "error": o.error is not None} for o in run.outputs
        ],
        "problems": _problems(run),
    }


# --- what ran where -----------------------------------------------------------------------------------


def _job(run: Run) -> dict[str, Any]:
    job = run.job
    ended = _finite(job.get("ended")) or run.last_time or None
    started = _finite(job.get("started")) or run.started or None
    options = job.get("options")
    return {
        "command": cut(job.get("command") or "", 4000),
        "script": cut(job.get("script") or "", 1000),
        "options": {str(k): cut(v, 500) for k, v in options.items()} if isinstance(options, dict) else {},
        "mode": _text(job.get("mode")),
        "host": _text(job.get("host")),
        "nodes": job.get("nodes") if isinstance(job.get("nodes"), int) else None,
        "started": started,
        "ended": ended if job.get("state") != "running" else None,
        "last_record": run.last_time or None,
        "duration_s": ended - started if ended and started else None,
        "exit_code": job.get("exit_code") if isinstance(job.get("exit_code"), int) else None,
        "restarts": job.get("restart") if isinstance(job.get("restart"), int) else 0,
        "versions": _versions(run),
    }


def _versions(run: Run) -> dict[str, str]:
    """By package; where processes differ, each version with its ranks."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, start in _starts(run):
        versions = start.get("versions")
        for package, version in versions.items() if isinstance(versions, dict) else ():
            found[str(package)][_text(version)].append(name)
    if not found and isinstance(run.job.get("versions"), dict):
        return {str(k): _text(v) for k, v in run.job["versions"].items()}
    return {
        package: next(iter(by_version))
        if len(by_version) == 1
        else "; ".join(f"{version} ({_names(names)})" for version, names in by_version.items())
        for package, by_version in found.items()
    }


def _names(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _starts(run: Run) -> Iterable[tuple[str, dict[str, Any]]]:
    for number, rank in sorted(run.ranks.items()):
        if rank.starts:
            yield f"rank {number}", rank.starts[-1]
    for number, server in sorted(run.servers.items()):
        if server.starts:
            yield f"server {number}", server.starts[-1]


def _figures(run: Run) -> dict[str, Any]:
    """The few numbers at the top."""
    ranks = list(run.ranks.values())
    trained = [rank for rank in ranks if rank.steps]
    histogram: Counter[int] = Counter()
    for rank in trained:
        histogram.update(rank.periods)
    total_s = sum(rank.counts["wall_s"] for rank in trained) / len(trained) if trained else 0.0
    examples = sum(rank.counts["examples"] for rank in trained)
    period, exposed = _mean(trained, "period_ms"), _mean(trained, "exposed_ms")
    return {
        "ranks": len(ranks),
        "servers": len(run.servers),
        "step": run.view.step,
        "step_ms": quantile(histogram, 0.5),
        "step_p99_ms": quantile(histogram, 0.99),
        "mean_step_ms": period,
        "examples": int(examples),
        "examples_per_s": examples / total_s if total_s else None,
        "exposed_fraction": exposed / period if period and exposed is not None else None,
        "sent_bytes": int(sum(rank.counts["sent_bytes"] for rank in trained)),
        "peak_rss": max((rank.peak_rss for rank in ranks), default=0) or None,
        "values": {name: _finite(series.last) for name, series in _shown(run) if series.values},
    }


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """A quantile of step times, within 2 %; None without steps."""
    left = q * sum(histogram.values())
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 0:
            return bucket_ms(bucket)
    return None


def _mean(ranks: Sequence[RankRun], key: str) -> float | None:
    values = [v for rank in ranks if (v := rank.mean_ms(key)) is not None]
    return math.fsum(values) / len(values) if values else None


def _processes(run: Run) -> list[dict[str, Any]]:
    """A row per process: from job.json, completed by the records."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    recorded = run.job.get("processes")
    for process in recorded if isinstance(recorded, list) else []:
        if not isinstance(process, dict) or not isinstance(process.get("rank"), int):
            continue
        is_server = process.get("role") == "server"
        rows["server" if is_server else "rank", process["rank"]] = {
            "role": _text(process.get("role")),
            "rank": process["rank"],
            "host": _text(process.get("host")),
            "pid": process.get("pid") if isinstance(process.get("pid"), int) else None,
            "state": _text(process.get("state")),
            "exit": process.get("exit") if isinstance(process.get("exit"), int) else None,
        }
    for number, rank in run.ranks.items():
        _complete(rows, "rank", number, rank.starts, rank.outcome)
        row = rows["rank", number]
        row["step"] = run.view.ranks[number].step if number in run.view.ranks else None
        row["examples"] = int(rank.counts["examples"])
        row["starts"] = rank.num_starts
        row["peak_rss"] = rank.peak_rss or None
    for number, server in run.servers.items():
        _complete(rows, "server", number, server.starts, server.outcome)
        rows["server", number]["peak_rss"] = server.peak_rss or None
    return [row for _, row in sorted(rows.items())]


def _complete(
    rows: dict[tuple[str, int], dict[str, Any]],
    role: str,
    number: int,
    starts: list[dict[str, Any]],
    outcome: str | None,
) -> None:
    start = starts[-1] if starts else {}
    row = rows.setdefault((role, number), {"role": _text(start.get("role")) or role, "rank": number})
    row.setdefault("host", _text(start.get("host")))
    row.setdefault("pid", start.get("pid") if isinstance(start.get("pid"), int) else None)
    row["threads"] = start.get("threads") if isinstance(start.get("threads"), int) else None
    row["outcome"] = outcome
    if not row.get("state"):
        row["state"] = "running" if outcome is None else "done" if outcome == "done" else "failed"


def _strategy(run: Run) -> dict[str, Any]:
    recorded = run.view.strategy or {}
    settings = recorded.get("settings")
    flat: dict[str, str] = {}
    if isinstance(settings, dict):
        _flatten(settings, "", flat)
    elif settings:
        flat["settings"] = cut(settings, 2000)
    return {"text": cut(recorded.get("text") or "", 2000), "settings": dict(list(flat.items())[:200])}


def _flatten(settings: Mapping[Any, Any], prefix: str, flat: dict[str, str]) -> None:
    for key, value in settings.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{key}.", flat)
        else:
            flat[f"{prefix}{key}"] = cut(value, 500)


# --- over time ----------------------------------------------------------------------------------------


def _shown(run: Run) -> list[tuple[str, Series]]:
    return list(run.view.values.items())[:_MAX_CURVES]


def _curves(run: Run) -> list[dict[str, Any]]:
    """The watched values and the rate over steps."""
    curves = [_curve(name, series, "value") for name, series in _shown(run) if series.values]
    if run.view.examples_per_s.values:
        curves.append(_curve("examples/s", run.view.examples_per_s, "rate"))
    first = run.view.ranks.get(min(run.view.ranks, default=0))
    if first is not None and first.history.values:
        curves.append(_curve("step time, ms", first.history, "step"))
    return curves


def _curve(name: str, series: Series, kind: str) -> dict[str, Any]:
    stride = math.ceil(len(series.steps) / _MAX_POINTS)
    steps, values = series.steps[::stride], [_finite(v) for v in series.values[::stride]]
    if stride > 1 and steps[-1] != series.steps[-1]:
        steps, values = [*steps, series.steps[-1]], [*values, _finite(series.values[-1])]
    finite = [v for v in map(_finite, series.values) if v is not None]
    return {
        "name": cut(name, 200),
        "kind": kind,
        "reduce": series.reduce,
        "steps": steps,
        "values": [_rounded(v) for v in values],
        "first": _finite(series.values[0]),
        "last": _finite(series.values[-1]),
        "min": min(finite, default=None),
        "max": max(finite, default=None),
        "mean": math.fsum(finite) / len(finite) if finite else None,
    }


def _over_time(bins: Mapping[int, Bins]) -> dict[str, Any]:
    """Rows of means with one width of a bin."""
    used = {number: b for number, b in sorted(bins.items()) if b.sums}
    width = max((b.width_s for b in used.values()), default=1.0)
    rows = {number: b.means(width) for number, b in used.items()}
    length = max(map(len, rows.values()), default=0)
    return {
        "width_s": width,
        "names": list(rows),
        "rows": [[*map(_rounded, row), *([None] * (length - len(row)))] for row in rows.values()],
    }


def _steps(run: Run) -> dict[str, Any]:
    """The step time by rank over time."""
    over_time = _over_time({n: r.period for n, r in run.ranks.items()})
    histogram: Counter[int] = Counter()
    for rank in run.ranks.values():
        histogram.update(rank.periods)
    quantiles = {f"p{round(q * 100)}": quantile(histogram, q) for q in (0.01, 0.5, 0.9, 0.99)}
    return over_time | {"quantiles": quantiles | {"max": quantile(histogram, 1.0)}}


# --- where the time goes ------------------------------------------------------------------------------


def _breakdown(run: Run) -> dict[str, Any]:
    """Per rank: from step to step (means of all steps), and inside of a step (medians of the sampled ones)."""
    periods, inside = [], []
    for number, rank in sorted(run.ranks.items()):
        if rank.steps:
            means = {key: rank.per_step[key] / rank.steps for key in rank.per_step}
            periods.append(
                {
                    "rank": number,
                    "steps": rank.steps,
                    "period_ms": _rounded(means["period_ms"]),
                    "computation": _rounded(means["busy_ms"]),
                    "blocked": _rounded(means["exposed_ms"]),
                    "script": _rounded(max(0.0, means["outside_ms"] - means["input_ms"])),
                    "input": _rounded(means["input_ms"]),
                }
            )
        if (times := _sampled(rank)) is not None:
            inside.append({"rank": number, "samples": len(rank.samples), **times})
    return {"periods": periods, "inside": inside, "phases": list(PHASES)}


def _sampled(rank: RankRun) -> dict[str, float | None] | None:
    """The median milliseconds of each phase; None without samples."""
    rows = []
    for sample in rank.samples:
        try:
            rows.append(phases(sample))
        except (TypeError, ValueError):
            continue
    if not rows:
        return None
    return {phase: _rounded(median(row[phase] for row in rows)) for phase in PHASES}


def _stragglers(run: Run) -> dict[str, Any]:
    """Each rank's own time against the median rank's, with what may explain it; and the events."""
    rows = []
    for number, rank in sorted(run.ranks.items()):
        busy, outside, exposed = (rank.mean_ms(k) for k in ("busy_ms", "outside_ms", "exposed_ms"))
        if busy is None:
            continue
        wall = rank.counts["wall_s"]
        mhz = [v for v in rank.mhz.means() if v is not None]
        rows.append(
            {
                "rank": number,
                "host": _text(rank.starts[-1].get("host")) if rank.starts else "",
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
        "ranks": [{k: _rounded(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows],
        "slow": [_describe(row, rows) for row in sorted(slow, key=lambda row: -row["relative"])[:5]],
        "events": [
            {"time": _finite(e.get("time")), "rank": e.get("rank"), "text": cut(e.get("text") or "", 500)}
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
            hints.append(f"it was ready but had no core for {row['delay']:.0%} of the time: other load on its host")
        if more("major_faults_per_s") > 10:
            hints.append(f"{row['major_faults_per_s']:.0f} major page faults per second: its host reads pages from disk")
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
        "relative": _rounded(row["relative"]),
        "cause": cause,
        "more_ms": _rounded(parts[cause]),
        "hints": hints,
    }


def _nodes(run: Run) -> dict[str, Any]:
    """Where the time goes in the program: by op and by source line; medians over the ranks of sums."""
    by_op: dict[str, list[float]] = defaultdict(list)
    by_source: dict[str, list[float]] = defaultdict(list)
    longest: dict[str, dict[str, Any]] = {}
    for profile in _profiles(run):
        ops: Counter[str] = Counter()
        sources: Counter[str] = Counter()
        for node in _dicts(profile.get("nodes")):
            ms = _finite(node.get("ms")) or 0.0
            ops[f"{_text(node.get('op'))} · {_text(node.get('role'))}"] += ms  # type: ignore[assignment]
            sources[_text(node.get("source")) or "unknown"] += ms  # type: ignore[assignment]
            name = cut(_text(node.get("name")), 200)
            entry = longest.setdefault(name, {"name": name, "ms": []})
            entry["ms"].append(ms)
            for key in ("op", "role", "source"):
                entry[key] = cut(_text(node.get(key)), 300)
        for key, value in ops.items():
            by_op[key].append(value)
        for key, value in sources.items():
            by_source[key].append(value)
    nodes = sorted(({**n, "ms": median(n["ms"])} for n in longest.values()), key=lambda n: -n["ms"])
    return {
        "by_op": _top(by_op),
        "by_source": _top(by_source),
        "longest": [{**n, "ms": _rounded(n["ms"])} for n in nodes[:50]],
    }


def _top(times: Mapping[str, list[float]]) -> list[list[Any]]:
    rows = sorted(((cut(key, 300), median(values)) for key, values in times.items()), key=lambda row: -row[1])
    return [[key, _rounded(ms)] for key, ms in rows[:_MAX_NODES] if ms]


def _profiles(run: Run) -> list[dict[str, Any]]:
    return [rank.profile for _, rank in sorted(run.ranks.items()) if rank.profile]


# --- communication ------------------------------------------------------------------------------------


def _communication(run: Run) -> dict[str, Any]:
    """Each collective: bytes, times, bandwidth, and the best bandwidth known for such a transfer.

    A collective lasts until the last rank has joined, so its shortest time over the ranks is that of the transfer.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for profile in _profiles(run):
        for entry in _dicts(profile.get("collectives")):
            found[_text(entry.get("name")), _text(entry.get("group"))].append(entry)
    rows = []
    for (name, group), entries in found.items():
        size = max((_finite(e.get("bytes")) or 0.0) for e in entries)
        times = {
            key: [v for e in entries if (v := _finite(e.get(key))) is not None]
            for key in ("ms", "queue_ms", "wait_ms")
        }
        shortest = min(times["ms"], default=0.0)
        rows.append(
            {
                "name": cut(name, 300),
                "group": cut(group, 100),
                "bytes": int(size),
                "ms": _rounded(median(times["ms"])) if times["ms"] else None,
                "shortest_ms": _rounded(shortest),
                "queue_ms": _rounded(median(times["queue_ms"])) if times["queue_ms"] else None,
                "wait_ms": _rounded(median(times["wait_ms"])) if times["wait_ms"] else None,
                "bytes_per_s": _rounded(size / shortest * 1000) if shortest and size else None,
            }
        )
    rows.sort(key=lambda row: -(row["ms"] or 0.0))
    reference = _relate_to_link(rows, run.doctor)
    totals = {
        "ms": _rounded(sum(row["ms"] or 0.0 for row in rows)),
        "wait_ms": _rounded(sum(row["wait_ms"] or 0.0 for row in rows)),
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
        row["link_bytes_per_s"] = _rounded(link) if link else None
        row["link_fraction"] = _rounded((row["bytes_per_s"] or 0.0) / link) if link else None
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
        elif key.endswith("bytes_per_s") and "all_reduce" in key and (number := _finite(value)) is not None:
            best = max(best, number)
    return best


# --- memory, servers, the rest ------------------------------------------------------------------------


def _memory(run: Run) -> dict[str, Any]:
    rows = []
    for number, rank in sorted(run.ranks.items()):
        memory = (rank.profile or {}).get("memory")
        memory = memory if isinstance(memory, dict) else {}
        breakdown = memory.get("breakdown")
        rows.append(
            {
                "rank": number,
                "peak_rss": rank.peak_rss or None,
                "peak_bytes": _finite(memory.get("peak_bytes")),
                "node": cut(memory.get("node") or "", 200),
                "source": cut(memory.get("source") or "", 300),
                "breakdown": {str(k): _finite(v) or 0.0 for k, v in breakdown.items()}
                if isinstance(breakdown, dict)
                else {},
                "largest": [
                    {
                        "name": cut(_text(entry.get("name")), 200),
                        "kind": cut(_text(entry.get("kind")), 200),
                        "what": cut(_text(entry.get("what")), 200),
                        "bytes": _finite(entry.get("nbytes")),
                        "source": cut(_text(entry.get("source")), 300),
                    }
                    for entry in _dicts(memory.get("largest"))[:10]
                ],
            }
        )
    over_time = _over_time({n: r.rss for n, r in run.ranks.items()})
    largest = max(rows, key=lambda row: (row["peak_bytes"] or 0.0, -row["rank"]), default=None)
    for row in rows:
        if row is not largest:
            row["largest"] = []  # alike on all ranks
    return {"ranks": rows, "rss": over_time, "largest_rank": largest["rank"] if largest else None}


def _servers(run: Run) -> dict[str, Any] | None:
    if not run.servers:
        return None
    tables: dict[str, dict[str, Any]] = {}
    for server in run.servers.values():
        for entry in _dicts(server.last.get("tables")):
            name = cut(_text(entry.get("name")), 200)
            table = tables.setdefault(
                name, {"name": name, "rows": 0, "bytes": 0, "pulled": 0, "pushed": 0, "spilled": 0.0}
            )
            rows = _finite(entry.get("rows")) or 0.0
            table["rows"] += int(rows)
            table["bytes"] += int(_finite(entry.get("bytes")) or 0)
            table["spilled"] += rows * (_finite(entry.get("spilled_fraction")) or 0.0)
            table["pulled"] += server.pulled[_text(entry.get("name"))]
            table["pushed"] += server.pushed[_text(entry.get("name"))]
    for table in tables.values():
        table["spilled"] = _rounded(table["spilled"] / table["rows"]) if table["rows"] else None
    seconds = max((server.seconds for server in run.servers.values()), default=0.0)
    for table in tables.values():
        for key in ("pulled", "pushed"):
            table[f"{key}_per_s"] = _rounded(table[key] / seconds) if seconds else None
    hits, misses = (
        sum(r.counts[key] for r in run.ranks.values()) for key in ("prefetch_hits", "prefetch_misses")
    )
    return {
        "tables": list(tables.values())[:100],
        "servers": [_server_row(number, server) for number, server in sorted(run.servers.items())],
        "rate": _over_time({n: s.rate for n, s in run.servers.items()}),
        "p99": _over_time({n: s.p99 for n, s in run.servers.items()}),
        "prefetch_hit_rate": _rounded(hits / (hits + misses)) if hits + misses else None,
    }


def _server_row(number: int, server: Any) -> dict[str, Any]:
    dense = server.last.get("dense")
    dense = dense if isinstance(dense, dict) else {}
    requests = {
        cut(kind, 100): {key: _rounded(value) for key, value in entry.items()}
        for kind, entry in list(server.requests.items())[:30]
    }
    return {
        "server": number,
        "host": _text(server.starts[-1].get("host")) if server.starts else "",
        "requests": requests,
        "requests_per_s": _rounded(sum(e["count"] for e in server.requests.values()) / server.seconds)
        if server.seconds
        else None,
        "max_queue": server.max_queue,
        "max_staleness": server.max_staleness,
        "trainers": _finite(server.last.get("trainers")),
        "dense_bytes": _finite(dense.get("bytes")),
        "peak_rss": server.peak_rss or None,
        "outcome": server.outcome,
    }


def _events(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "time": _finite(event.get("time")),
            "kind": cut(_text(event.get("kind")), 50),
            "text": cut(_text(event.get("text")), 1000),
        }
        for event in list(run.view.events)[-_MAX_EVENTS:]
    ]


def _problems(run: Run) -> list[str]:
    """What this report could not read."""
    problems = []
    if not run.job:
        problems.append("job.json is missing or unreadable: command, options and states are unknown")
    if run.num_malformed:
        problems.append(f"{run.num_malformed:,} malformed records were skipped")
    if not run.ranks and not run.servers:
        problems.append("no process has written records: it may have failed before it imported argosy")
    elif not any(rank.steps for rank in run.ranks.values()):
        problems.append("no rank has completed a training step after its warm-up")
    return problems


# --- values -------------------------------------------------------------------------------------------


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _rounded(value: float | None) -> float | None:
    """Five significant digits: more would only take space."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
