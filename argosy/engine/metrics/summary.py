"""What a job does, in a few lines of facts: for the terminal, its plain lines, `fleetrun status` and `fleetrun top`."""

# SPDX-License-Identifier: Apache-2.0
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from argosy.engine.metrics.job_view import JobView, RankView, ServerView

Job = dict[str, Any]
"""The content of job.json; empty if there is none."""
SILENT_S = 10.0
"""From when on the time without a record is shown."""
DELAYED_PART = 0.05
"""A rank that waits for a core for less is not worth a line."""
MAX_VALUES = 8
MAX_SERVERS = 4
_BAR = 24


@dataclass(frozen=True)
class Fact:
    """A part of a line."""

    text: str
    style: str = ""
    """Of rich: good, warning and bad are green, yellow and red."""


Line = list[Fact]


def lines(job: Job, view: JobView, now: float) -> list[Line]:
    """The facts of a job, most important line first; lines without facts are left out."""
    every = (
        [*_processes(job, view), *_elapsed(job, view, now)],
        _progress(view, now if is_running(job) else None),
        _speed(view),
        _load(view) if is_running(job) else [],
        _values(view),
        *_servers(view),
        _last_event(view, now) if is_running(job) else [],
    )
    return [line for line in every if line]


def plain(job: Job, view: JobView, now: float) -> str:
    """One line for a log: facts separated by semicolons."""
    shown = [*_processes(job, view), *_progress(view, now, bar=False), *_silence(view, now), *_speed(view)]
    return "; ".join(fact.text for fact in [*shown, *_values(view)])


def is_running(job: Job) -> bool:
    """True if job.json says that the job runs; see `launcher_is_gone`."""
    return bool(job.get("state", "running") == "running")


def launcher_is_gone(job: Job, host: str) -> bool:
    """True if a job of this host has not ended, but its launcher does not exist: one of them was killed."""
    pid = job.get("launcher_pid")
    if not is_running(job) or job.get("host") != host or not isinstance(pid, int):
        return False
    born = _born(pid)
    return born is None or born > job["started"] + 5.0  # the pid may be of another process now


def _born(pid: int) -> float | None:
    """When a process was started, by time.time(); None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    return booted + ticks / os.sysconf("SC_CLK_TCK")


# --- the lines ------------------------------------------------------------------------------------------


def _processes(job: Job, view: JobView) -> Line:
    """`2 ranks up`, `3 of 4 workers up`, `2 servers`."""
    listed = job.get("processes") or []
    facts: Line = []
    for role in ("rank", "worker", "server"):
        states = [p.get("state") for p in listed if p.get("role") == role]
        if not states:
            continue
        up, failed = states.count("running"), states.count("failed")
        if is_running(job):
            up_of = count(up, role) if up == len(states) else f"{up} of {count(len(states), role)}"
            facts.append(Fact(f"{up_of} up", "good" if up == len(states) else "warning"))
        else:
            facts.append(Fact(count(len(states), role)))
        if failed:
            facts.append(Fact(f"{failed} failed", "bad"))
    if not facts and view.ranks:
        facts.append(Fact(count(len(view.ranks), "rank")))
    if job.get("restart"):
        facts.append(Fact(f"restart {job['restart']}", "warning"))
    return facts


def _elapsed(job: Job, view: JobView, now: float) -> Line:
    if not isinstance(job.get("started"), int | float):
        return []
    ended = job.get("ended") or now
    facts = [Fact(duration(ended - job["started"]), "dim")]
    return facts + (_silence(view, now) if is_running(job) else [])


def _silence(view: JobView, now: float) -> Line:
    """The time since the last record of any process that still runs."""
    processes: list[RankView | ServerView] = [*view.ranks.values(), *view.servers.values()]
    times = [p.time for p in processes if p.outcome is None and p.time]
    if not times or now - max(times) < SILENT_S:
        return []
    return [Fact(f"nothing recorded for {duration(now - max(times))}", "warning")]


def _progress(view: JobView, now: float | None, bar: bool = True) -> Line:
    """`now`: None if the job has ended.

    `step 120  epoch 2 of 10  batch 20 of 100 ━━─── 12% 3:12 min left`
    """
    facts: Line = [Fact(f"step {view.step:,}", "bold")] if view.step else []
    progress = view.progress or {}
    epoch, epochs = progress.get("epoch"), progress.get("epochs")
    batch, batches = progress.get("batch"), progress.get("batches")
    if epoch is not None:
        facts.append(Fact(f"epoch {epoch} of {epochs}" if epochs else f"epoch {epoch}"))
    if batch is not None and (batches or not view.step):
        facts.append(Fact(f"batch {batch:,} of {batches:,}" if batches else f"batch {batch:,}"))
    fraction = _fraction(epoch, epochs, batch, batches)
    if fraction is not None:
        text = f"{bar_of(fraction)} {fraction:.0%}" if bar else f"{fraction:.0%}"
        facts.append(Fact(text, "good"))
    remaining = None if now is None else view.remaining_s(now)
    if remaining is not None and (fraction or 0.0) < 1.0:
        facts.append(Fact(f"{duration(remaining)} left{'' if epoch is None or epochs else ' in this epoch'}"))
    return facts


def _fraction(epoch: int | None, epochs: int | None, batch: int | None, batches: int | None) -> float | None:
    if not batches or batch is None:
        return None
    done = batch / batches
    if epoch is not None and epochs:
        done = (epoch - 1 + done) / epochs
    return min(1.0, max(0.0, done))


def bar_of(fraction: float, width: int = _BAR) -> str:
    """A bar of heavy and light lines."""
    filled = round(fraction * width)
    return "━" * filled + "─" * (width - filled)


def _speed(view: JobView) -> Line:
    facts: Line = []
    if (rate := view.total_per_s("examples")) is not None and rate > 0:
        facts.append(Fact(f"{number(rate)} examples/s", "bold"))
    if (step_ms := view.step_ms) is not None:
        facts.append(Fact(f"{number(step_ms)} ms/step"))
    if (exposed := view.exposed_fraction) is not None and len(view.ranks) + len(view.servers) > 1:
        facts.append(Fact(f"exposed {exposed:.0%}", "warning" if exposed > 0.3 else ""))
    if (slowest := view.slowest) is not None and (excess := excess_of(view, slowest)) is not None:
        style = "warning" if excess > 0.1 else ""
        facts.append(Fact(f"slowest rank {slowest.rank} (+{excess:.0%})", style))
    return facts


def delayed_fraction(rank: RankView) -> float | None:
    """The part of the time in which a rank was ready to run, but other processes had its cores."""
    return rank.per_s("delay_s")


def _load(view: JobView) -> Line:
    """Other processes on the hosts of the job; a note, since no rank is a straggler for that."""
    known = {r.rank: part for r in view.ranks.values() if (part := delayed_fraction(r)) is not None}
    if not known or max(known.values()) < DELAYED_PART:
        return []
    most = max(known, key=lambda rank: known[rank])
    mean = math.fsum(known.values()) / len(known)
    return [Fact(f"other processes delay the ranks by {mean:.0%} (rank {most}: {known[most]:.0%})", "dim")]


def own_ms(rank: RankView) -> float | None:
    """What a rank needs per step without waiting for others."""
    busy, outside = rank.mean_ms("busy_ms"), rank.mean_ms("outside_ms")
    return None if busy is None else busy + (outside or 0.0)


def excess_of(view: JobView, rank: RankView) -> float | None:
    """How much longer a rank computes per step than the median of all."""
    times = sorted(ms for r in view.ranks.values() if (ms := own_ms(r)) is not None)
    rank_ms = own_ms(rank)
    if rank_ms is None or not times or not times[(len(times) - 1) // 2]:
        return None
    return max(0.0, rank_ms / times[(len(times) - 1) // 2] - 1.0)


def _values(view: JobView) -> Line:
    facts: Line = []
    for name, series in sorted(view.values.items())[:MAX_VALUES]:
        if series.values:
            facts.append(Fact(f"{name} {number(series.last)}", "" if math.isfinite(series.last) else "bad"))
    if len(view.values) > MAX_VALUES:
        facts.append(Fact(f"and {len(view.values) - MAX_VALUES} more", "dim"))
    return facts


def _servers(view: JobView) -> list[Line]:
    busy = [server for _, server in sorted(view.servers.items()) if server.tables]
    lines = [server_line(server) for server in busy[:MAX_SERVERS]]
    if len(busy) > MAX_SERVERS:
        lines.append([Fact(f"and {len(busy) - MAX_SERVERS} more servers", "dim")])
    return lines


def server_line(server: ServerView) -> Line:
    """The rows, rates and latencies of a parameter server."""
    record = server.tables or {}
    tables = record.get("tables") or []
    interval = record.get("interval_s") or 1.0
    facts = [Fact(f"server {server.number}", "bold")]
    if tables:
        facts.append(Fact(f"{sum(t.get('rows') or 0 for t in tables):,} rows"))
    stored = sum(t.get("bytes") or 0 for t in tables) + ((record.get("dense") or {}).get("bytes") or 0)
    if stored:
        facts.append(Fact(size(stored)))
    requests = sorted((record.get("requests") or {}).items(), key=lambda item: -(item[1].get("count") or 0))
    for kind, stats in requests[:2]:
        p99 = stats.get("p99_ms")
        latency = "" if p99 is None else f" (p99 {number(p99)} ms)"
        facts.append(Fact(f"{kind} {number((stats.get('count') or 0) / interval)}/s{latency}"))
    if queue := record.get("queue"):
        facts.append(Fact(f"queue {queue}", "warning" if queue > 64 else ""))
    if (staleness := (record.get("staleness") or {}).get("mean")) is not None:
        facts.append(Fact(f"staleness {number(staleness)}"))
    return facts


def _last_event(view: JobView, now: float) -> Line:
    """The last straggler, for a minute, unless it has recovered."""
    for event in reversed(view.events):
        if now - float(event.get("time") or 0.0) > 60.0:
            break
        if event.get("kind") == "straggler":
            return [Fact(str(event.get("text", "")), "warning")]
        if event.get("kind") == "straggler_recovered":
            break
    return []


# --- numbers --------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Four significant digits; thousands are separated."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def count(amount: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `3:12 min`, `1:05:00 h`, `2 d 3 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 48 * 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(num_bytes: float) -> str:
    """`1.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


# --- everything, for programs -----------------------------------------------------------------------


def as_json(job: Job, view: JobView, directory: str, now: float | None = None) -> dict[str, Any]:
    """What `fleetrun status --json` prints."""
    now = time.time() if now is None else now
    slowest = view.slowest
    return {
        "directory": directory,
        "job": job,
        "step": view.step,
        "step_ms": view.step_ms,
        "examples_per_s": view.total_per_s("examples"),
        "exposed_fraction": view.exposed_fraction,
        "remaining_s": view.remaining_s(now),
        "progress": view.progress,
        "slowest": None if slowest is None else {"rank": slowest.rank, "excess": excess_of(view, slowest)},
        "values": {name: _finite(series.last) for name, series in view.values.items() if series.values},
        "ranks": [rank_json(rank) for _, rank in sorted(view.ranks.items())],
        "servers": [{"number": s.number, **(s.tables or {})} for _, s in sorted(view.servers.items())],
        "events": list(view.events)[-20:],
    }


def rank_json(rank: RankView) -> dict[str, Any]:
    """The last state of a rank."""
    return {
        "rank": rank.rank,
        "time": rank.time,
        "step": rank.step,
        "step_ms": rank.mean_ms("period_ms"),
        "busy_ms": rank.mean_ms("busy_ms"),
        "exposed_ms": rank.mean_ms("exposed_ms"),
        "outside_ms": rank.mean_ms("outside_ms"),
        "input_ms": rank.mean_ms("input_ms"),
        "examples_per_s": rank.per_s("examples"),
        "delayed_fraction": delayed_fraction(rank),
        "rss": rank.rss,
        "outcome": rank.outcome,
    }


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def rank_rows(job: Job, view: JobView) -> list[Sequence[str]]:
    """A table of the processes: name, state, pid, step, ms/step, examples/s, exposed, memory, log."""
    rows: list[Sequence[str]] = []
    for process in job.get("processes") or []:
        role, rank = process.get("role"), process.get("rank")
        state = str(process.get("state"))
        if process.get("exit"):
            state += f" ({process['exit']})"
        shown = view.ranks.get(rank) if role != "server" and isinstance(rank, int) else None
        rows.append(
            (
                f"{role} {rank}",
                state,
                str(process.get("pid") or ""),
                *_rank_cells(shown),
                str(process.get("log") or ""),
            )
        )
    return rows


RANK_COLUMNS = ("process", "state", "pid", "step", "ms/step", "examples/s", "exposed", "memory", "log")


def _rank_cells(rank: RankView | None) -> tuple[str, str, str, str, str]:
    if rank is None:
        return ("", "", "", "", "")
    step_ms, rate = rank.mean_ms("period_ms"), rank.per_s("examples")
    exposed, rss = rank.exposed_fraction, rank.rss
    return (
        f"{rank.step:,}" if rank.step else "",
        "" if step_ms is None else number(step_ms),
        "" if not rate else number(rate),
        "" if exposed is None else f"{exposed:.0%}",
        "" if rss is None else size(rss),
    )
