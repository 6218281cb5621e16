"""From a run to the numbers of the report: plain dicts and lists, which the page embeds and `--json` prints.

All of them are finite or None, and bounded in number.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from argosy.report.analyse_communication import communication
from argosy.report.analyse_memory import memory, servers
from argosy.report.analyse_time import (
    breakdown,
    curves,
    first_not_finite,
    nodes,
    quantile,
    shown,
    steps,
    stragglers,
)
from argosy.report.collect import JobRun, RankRun, cut
from argosy.report.failure import find_failure
from argosy.report.values import finite, text

FORMAT, VERSION = "argosy.report", 1
_MAX_EVENTS = 300


def analyse(run: JobRun) -> dict[str, Any]:
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
        "curves": curves(run),
        "steps": steps(run),
        "breakdown": breakdown(run),
        "stragglers": stragglers(run),
        "nodes": nodes(run),
        "communication": communication(run),
        "memory": memory(run),
        "servers": servers(run),
        "events": _events(run),
        "outputs": [
            {"name": o.name, "log": o.log, "lines": o.lines, "error": o.error is not None}
            for o in run.outputs
        ],
        "problems": _problems(run),
    }


# --- what ran where ----------------------------------------------------------------------------------


def _job(run: JobRun) -> dict[str, Any]:
    job = run.job
    ended = finite(job.get("ended")) or run.last_time or None
    started = finite(job.get("started")) or run.started or None
    options = job.get("options")
    return {
        "command": cut(job.get("command") or "", 4000),
        "script": cut(job.get("script") or "", 1000),
        "options": {str(k): cut(v, 500) for k, v in options.items()} if isinstance(options, dict) else {},
        "mode": text(job.get("mode")),
        "host": text(job.get("host")),
        "nodes": job.get("nodes") if isinstance(job.get("nodes"), int) else None,
        "started": started,
        "ended": ended if job.get("state") != "running" else None,
        "last_record": run.last_time or None,
        "duration_s": ended - started if ended and started else None,
        "exit_code": job.get("exit_code") if isinstance(job.get("exit_code"), int) else None,
        "restarts": job.get("restart") if isinstance(job.get("restart"), int) else 0,
        "versions": _versions(run),
    }


def _versions(run: JobRun) -> dict[str, str]:
    """By package; where processes differ, each version with its ranks."""
    names_by_version: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, start in _starts(run):
        versions = start.get("versions")
        for package, version in versions.items() if isinstance(versions, dict) else ():
            names_by_version[str(package)][text(version)].append(name)
    if not names_by_version and isinstance(run.job.get("versions"), dict):
        return {str(k): text(v) for k, v in run.job["versions"].items()}
    return {
        package: next(iter(by_version))
        if len(by_version) == 1
        else "; ".join(f"{version} ({_names(names)})" for version, names in by_version.items())
        for package, by_version in names_by_version.items()
    }


def _names(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _starts(run: JobRun) -> Iterable[tuple[str, dict[str, Any]]]:
    for number, rank in sorted(run.ranks.items()):
        if rank.starts:
            yield f"rank {number}", rank.starts[-1]
    for number, server in sorted(run.servers.items()):
        if server.starts:
            yield f"server {number}", server.starts[-1]


def _figures(run: JobRun) -> dict[str, Any]:
    """The few numbers at the top."""
    ranks = list(run.ranks.values())
    trained = [rank for rank in ranks if rank.steps]
    histogram: Counter[int] = Counter()
    for rank in trained:
        histogram.update(rank.periods)
    total_s = run.thin * sum(rank.counts["wall_s"] for rank in trained) / len(trained) if trained else 0.0
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
        "values": {name: finite(series.last) for name, series in shown(run) if series.values},
    }


def _mean(ranks: Sequence[RankRun], key: str) -> float | None:
    values = [v for rank in ranks if (v := rank.mean_ms(key)) is not None]
    return math.fsum(values) / len(values) if values else None


def _processes(run: JobRun) -> list[dict[str, Any]]:
    """A row per process: from job.json, completed by the records."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    recorded = run.job.get("processes")
    for process in recorded if isinstance(recorded, list) else []:
        if not isinstance(process, dict) or not isinstance(process.get("rank"), int):
            continue
        is_server = process.get("role") == "server"
        rows["server" if is_server else "rank", process["rank"]] = {
            "role": text(process.get("role")),
            "rank": process["rank"],
            "host": text(process.get("host")),
            "pid": process.get("pid") if isinstance(process.get("pid"), int) else None,
            "state": text(process.get("state")),
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
    row = rows.setdefault((role, number), {"role": text(start.get("role")) or role, "rank": number})
    row.setdefault("host", text(start.get("host")))
    row.setdefault("pid", start.get("pid") if isinstance(start.get("pid"), int) else None)
    row["threads"] = start.get("threads") if isinstance(start.get("threads"), int) else None
    row["outcome"] = outcome
    if not row.get("state"):
        row["state"] = "running" if outcome is None else "done" if outcome == "done" else "failed"


def _strategy(run: JobRun) -> dict[str, Any]:
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


# --- events and problems -----------------------------------------------------------------------------


def _events(run: JobRun) -> list[dict[str, Any]]:
    return [
        {
            "time": finite(event.get("time")),
            "kind": cut(text(event.get("kind")), 50),
            "text": cut(text(event.get("text")), 1000),
        }
        for event in list(run.view.events)[-_MAX_EVENTS:]
    ]


def _problems(run: JobRun) -> list[str]:
    """What the reader should know first: values that are not finite, and what could not be read."""
    problems = []
    for name, series in shown(run):
        if (place := first_not_finite(series)) is not None:
            value, step = series.values[place], series.steps[place]
            problems.append(f"{cut(name, 100)} was not finite at step {step:,}: {value}")
    if not run.job:
        problems.append("job.json is missing or unreadable: command, options and states are unknown")
    if run.thin > 1:
        problems.append(
            f"the records are large: one in {run.thin} was read, so that sums and rates are estimates"
        )
    if run.num_malformed:
        problems.append(f"{run.num_malformed:,} malformed records were skipped")
    if not run.ranks and not run.servers:
        problems.append("no process has written records: it may have failed before it imported argosy")
    elif not any(rank.steps for rank in run.ranks.values()):
        problems.append("no rank has completed a training step after its warm-up")
    return problems
