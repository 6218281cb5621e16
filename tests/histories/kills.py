"""Kills, stops and partitions servers and trainers at random moments, and checks what the trainers have seen.

python -m tests.histories.kills --kills 1000 --seed 1

Two servers and two trainers, each a process on a host of its own (a network namespace); rounds of some faults, in
turns under each mode. Every push has a coordinate of a vector and a row of a table of its own on each server, so that
every pull shows which pushes count; a register shows their order. A fault is one of

    kill        SIGKILL; another process takes its place after up to 0.5 s
    stop        SIGSTOP for up to 3 s
    partition   0.1 to 6 s: the host's link is down, or the packets from it, or those to it are dropped

of a server (7 of 10) or a trainer. One in five begins while another one lasts. At the end of a round all servers are
killed, and what their successors have is compared, too.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from argosy.engine.ps.server.state import DURABILITIES
from tests.histories.checker import History, order_violations, stale, steps_differ, violations
from tests.histories.hosts import PARTITIONS, Hosts
from tests.histories.processes import (
    Job,
    Member,
    Progress,
    Recorded,
    begin_forks,
    read,
    recorded,
    serve,
    train,
)
from tests.histories.revealing import plan_of

SERVERS = TRAINERS = 2
FAULTS = ("kill", "stop", "partition")
_INDICES = 1000
"""A round ends when a trainer has used most of so many."""
_MOST_FAULTS = 12
_MOST_SHOWN = 5
"""Violations of a round that are printed."""
_OVERLAP = 0.2
_ON_SERVER = 0.7
_PATIENCE_S = 45.0
"""Without a step of each trainer for so long, the round hangs; less than the deadline of requests."""


@dataclass
class Outcome:
    """What was done in a round, or in all rounds of a mode, and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in FAULTS})
    """By fault: from its end until each trainer has done a step; of those that did not overlap."""
    unavailable_s: float = 0.0
    """The longest time between two acknowledged steps of a trainer."""
    violations: list[str] = field(default_factory=list)
    """The first ones of each round; `counts` has their number."""

    @property
    def faults(self) -> int:
        return sum(self.counts[kind] for kind in FAULTS)

    def add(self, other: "Outcome") -> None:
        self.counts += other.counts
        for kind, seconds in other.recovery_s.items():
            self.recovery_s[kind] += seconds
        self.unavailable_s = max(self.unavailable_s, other.unavailable_s)
        self.violations += other.violations

    def summary(self) -> dict[str, Any]:
        """The figures, for JSON."""
        seconds = {kind: actual for kind, actual in self.recovery_s.items() if actual}
        return {
            **{f"{kind}s": self.counts[kind] for kind in FAULTS},
            "faults of trainers": self.counts["of trainers"],
            "faults that overlap": self.counts["overlap"],
            "partitions by kind": {how: self.counts[how] for how in PARTITIONS},
            "pushes acknowledged": self.counts["pushes"],
            "pulls checked": self.counts["pulls"],
            "longest unavailability in s": round(self.unavailable_s, 2),
            "recovery in s, median": {kind: round(statistics.median(s), 3) for kind, s in seconds.items()},
            "recovery in s, most": {kind: round(max(s), 3) for kind, s in seconds.items()},
            "rounds": self.counts["rounds"],
            "rounds with violations": self.counts["bad rounds"],
            "violations": self.counts["violations"],
        }


class JobFailed(Exception):
    """A trainer does no steps any more, or a process has ended by itself."""


class Round:
    """One job that is attacked."""

    def __init__(self, hosts: Hosts, job: Job, drawn: random.Random) -> None:
        self.job, folder = job, job.folder
        self.outcome = Outcome()
        self._hosts, self._drawn = hosts, drawn
        self._progress = Progress(self.job)
        self.members = [
            Member(hosts, host, folder / f"log.server{host}", serve, self.job, host)
            for host in range(SERVERS)
        ]
        self.members += [
            Member(hosts, SERVERS + n, folder / f"log.trainer{n}", train, self.job, n)
            for n in range(TRAINERS)
        ]
        self._kinds = FAULTS if not hosts.why_loopback else FAULTS[:2]

    def attack(self, faults: int) -> None:
        """Up to so many faults, and the check."""
        self._wait_for_progress()
        while self.outcome.faults < faults and self._progress.indices.max() < 0.8 * _INDICES:
            time.sleep(self._drawn.random() * 0.15)
            self._check_alive()
            kind = self._one_fault(faults)
            recovery_s = self._wait_for_progress()
            if kind is not None:
                self.outcome.recovery_s[kind].append(recovery_s)
        self._progress.end()
        for member in self.members[SERVERS:]:
            member.process.join(_PATIENCE_S)
            if member.process.exitcode is None:
                raise JobFailed(f"{member.name} does not end; {member.log}")
        for server in self.members[:SERVERS]:
            server.kill()
            server.start()
        self._read()

    def close(self) -> None:
        for member in self.members:
            member.kill()

    def _one_fault(self, most: int) -> str | None:
        """A fault, or two of which one begins while the other lasts; the kind if it was one."""
        kind, host = self._pick()
        with self._fault(kind, host):
            time.sleep(self._lasts(kind))
            if self._drawn.random() >= _OVERLAP or self.outcome.faults >= most:
                return kind
            other, another = self._pick()
            # Two of one host only if one is a partition: a process that was killed cannot be stopped.
            if host == another and (kind == "partition") == (other == "partition"):
                another = (host + 1) % len(self.members)
            with self._fault(other, another):
                self.outcome.counts["overlap"] += 2
                time.sleep(self._lasts(other))
        return None

    def _pick(self) -> tuple[str, int]:
        is_server = self._drawn.random() < _ON_SERVER
        host = self._drawn.randrange(SERVERS) if is_server else SERVERS + self._drawn.randrange(TRAINERS)
        return self._drawn.choice(self._kinds), host

    def _lasts(self, kind: str) -> float:
        share = self._drawn.random()
        # Most partitions and stops are short: the logarithm is uniform.
        return {"kill": 0.5 * share, "stop": 0.01 * 300**share, "partition": 0.1 * 60**share}[kind]

    def _fault(self, kind: str, host: int) -> contextlib.AbstractContextManager[None]:
        counts = self.outcome.counts
        counts[kind] += 1
        counts["of trainers"] += host >= SERVERS
        match kind:
            case "kill":
                return self._logged(kind, host, self.members[host].killed())
            case "stop":
                return self._logged(kind, host, self.members[host].stopped())
        how = self._drawn.choice(PARTITIONS)
        counts[how] += 1
        return self._logged(how, host, self._hosts.partitioned(host, how))

    @contextlib.contextmanager
    def _logged(self, what: str, host: int, fault: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Note when a fault has begun and ended: time.monotonic() as in the history."""
        with open(self.job.folder / "faults", "a") as file:
            name = self.members[host].name
            file.write(f"{time.monotonic():.4f} {what}: {name} begins\n")
            with fault:
                file.write(f"{time.monotonic():.4f} {what}: {name} has begun\n")
                yield
            file.write(f"{time.monotonic():.4f} {what}: {name} has ended\n")

    def _wait_for_progress(self) -> float:
        """Return when each trainer has done a step, or has no index left for one; how long that took."""
        before, began = self._progress.done.copy(), time.monotonic()
        while not ((self._progress.done > before) | (self._progress.indices >= _INDICES)).all():
            self._check_alive()
            if time.monotonic() > began + _PATIENCE_S:
                steps = (self._progress.done - before).tolist()
                raise JobFailed(f"within {_PATIENCE_S:g} s the trainers have done {steps} steps")
            time.sleep(0.002)
        return time.monotonic() - began

    def _check_alive(self) -> None:
        for member in self.members:
            if member.process.exitcode is not None:
                raise JobFailed(
                    f"{member.name} has ended by itself with exit status {member.process.exitcode}; {member.log}"
                )

    def _read(self) -> None:
        """Read what the servers have at the end."""
        reader = Member(self._hosts, SERVERS, self.job.folder / "log.reader", read, self.job, 0)
        reader.process.join(_PATIENCE_S)
        if reader.process.exitcode != 0:
            reader.kill()
            raise JobFailed(
                f"{reader.name} has ended with exit status {reader.process.exitcode}; {reader.log}"
            )


def attack(hosts: Hosts, number: int, job: Job, faults: int, drawn: random.Random) -> Outcome:
    """Attack a job with up to so many faults."""
    round_ = Round(hosts, job, drawn)
    outcome = round_.outcome
    wrong = []
    try:
        round_.attack(faults)
    except JobFailed as e:
        wrong.append(str(e))
    finally:
        round_.close()
    record = recorded(job)
    wrong += record.errors + checked(job, record)
    outcome.violations = [f"round {number}, {job.plan.mode}: {text}" for text in wrong[:_MOST_SHOWN]]
    outcome.counts += Counter({"rounds": 1, "bad rounds": int(bool(wrong)), "violations": len(wrong)})
    outcome.counts["pushes"] += sum(push.ended < math.inf for push in record.pushes)
    outcome.counts["pulls"] += sum(len(history.pulls) for history in (*record.vectors, *record.rows))
    for trainer in range(TRAINERS):
        ended = sorted(p.ended for p in record.pushes if p.trainer == trainer and p.ended < math.inf)
        gaps = [after - before for before, after in itertools.pairwise(ended)]
        outcome.unavailable_s = max([outcome.unavailable_s, *gaps])
    return outcome


def checked(job: Job, actual: Recorded) -> list[str]:
    """What is wrong with what the trainers have seen."""
    wrong, mode = [], job.plan.mode
    for server in range(job.servers):
        history = actual.vectors[server]
        here = violations(history, job.size)
        if mode == "sync":
            here += steps_differ(history)
        elif mode != "geo":
            here += order_violations(history)
        if mode == "half_async":
            acknowledged = [push for push in history.pushes if push.ended < math.inf]
            here += stale(History(acknowledged, history.pulls))
        here += [f"table: {text}" for text in violations(actual.rows[server], job.size)]
        wrong += [f"server {server}: {text}" for text in here]
    return wrong


# --- the command --------------------------------------------------------------------------------------


def main() -> int:
    """0: nothing was wrong. 1: something was."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=100, help="faults over all modes")
    p.add_argument(
        "--seed", type=int, default=0, help="of the faults; what they hit depends on the time, too"
    )
    modes = ("sync", "async", "half_async", "geo")
    p.add_argument("--modes", nargs="+", choices=modes, default=modes)
    p.add_argument("--durability", choices=DURABILITIES[:2], default="log", help="of the servers")
    p.add_argument(
        "--report", type=Path, help="write the figures to this JSON file, and a Markdown file beside it"
    )
    options = p.parse_args()
    begin_forks()
    drawn, began, by_mode = (
        random.Random(options.seed),
        time.monotonic(),
        {m: Outcome() for m in options.modes},
    )
    with Hosts(SERVERS + TRAINERS) as hosts:
        if hosts.why_loopback:
            print(
                f"no partitions: network namespaces are not permitted here ({hosts.why_loopback})", flush=True
            )
        for number, mode in enumerate(itertools.cycle(options.modes)):
            left = options.kills - sum(outcome.faults for outcome in by_mode.values())
            if left <= 0:
                break
            faults = min(left, _MOST_FAULTS, -(-options.kills // len(options.modes)))
            with tempfile.TemporaryDirectory(prefix="kills-") as folder:
                job = _job(hosts, number, mode, options.durability, Path(folder))
                outcome = attack(hosts, number, job, faults, drawn)
                copy = Path(tempfile.gettempdir(), f"violation-{os.getpid()}-{number}")
                if outcome.violations:
                    shutil.copytree(folder, copy)
            by_mode[mode].add(outcome)
            print(_line(number, mode, outcome, copy), flush=True)
    summary = _summary(options, by_mode, time.monotonic() - began, hosts.why_loopback)
    print(json.dumps(summary["all"], indent=1))
    if options.report is not None:
        options.report.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
        options.report.with_suffix(".md").write_text(_markdown(summary))
    return int(any(outcome.violations for outcome in by_mode.values()))


def _job(hosts: Hosts, number: int, mode: str, durability: str, folder: Path) -> Job:
    endpoints, size = [hosts.endpoint(host, number) for host in range(SERVERS)], TRAINERS * _INDICES
    return Job(plan_of(endpoints, TRAINERS, mode, size), size, folder, durability)


def _line(number: int, mode: str, outcome: Outcome, folder: Path) -> str:
    done = ", ".join(f"{outcome.counts[kind]} {kind}s" for kind in FAULTS)
    seen = f"{outcome.counts['pushes']} pushes, {outcome.counts['pulls']} pulls"
    text = f"{number:4} {mode:10} {done}; {seen}, unavailable for at most {outcome.unavailable_s:.1f} s: "
    wrong = [f"{outcome.counts['violations']} violations, see {folder}", *outcome.violations]
    return text + ("\n     ".join(wrong) if outcome.violations else "right")


def _summary(options: Any, by_mode: dict[str, Outcome], seconds: float, why_loopback: str) -> dict[str, Any]:
    everything = Outcome()
    for outcome in by_mode.values():
        everything.add(outcome)
    return {
        "command": " ".join(["python -m tests.histories.kills", *sys.argv[1:]]),
        "seed": options.seed,
        "durability": options.durability,
        "seconds": round(seconds),
        "no partitions, because": why_loopback,
        "all": everything.summary(),
        "modes": {mode: outcome.summary() for mode, outcome in by_mode.items()},
        "violations": everything.violations,
    }


def _markdown(summary: dict[str, Any]) -> str:
    from harness import _cpu

    columns = {**summary["modes"], "all": summary["all"]}
    machine = (
        f"{_cpu()}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"
    )
    lines = [
        f"# kills, {datetime.date.today().isoformat()}",
        "",
        f"`{summary['command']}` on {machine}; {summary['seconds']:,} s.",
        "",
        f"{SERVERS} servers and {TRAINERS} trainers, each a process on a host of its own, "
        f"{'loopback' if summary['no partitions, because'] else 'a network namespace'}; "
        f"`--server_durability={summary['durability']}`.",
        "",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for row, value in summary["all"].items():
        if not isinstance(value, dict):
            lines.append(f"| {row} | {' | '.join(f'{outcome[row]:,}' for outcome in columns.values())} |")
            continue
        for name in value:
            cells = [outcome[row].get(name, "") for outcome in columns.values()]
            lines.append(f"| {row}: {name} | {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", *(f"- {text}" for text in summary["violations"])]).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
