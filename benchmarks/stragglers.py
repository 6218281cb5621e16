"""Straggler detection on real jobs of two ranks: after how many steps, which cause, and alarms of even jobs.

python benchmarks/stragglers.py --rounds 3      some minutes; straggler_worker.py describes what makes a rank slow

The even jobs run on the machine as it is, and beside a process that moves over the cores (moving_load.py). An alarm of
an even job counts, whatever its cause. A throttled link needs network namespaces: tests/jobs/test_stragglers.py.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness

from argosy.engine.metrics.job_directory import JobDirectory, Record
from argosy.engine.metrics.stragglers import StragglerDetector

HERE = Path(__file__).parent
WORKER = HERE / "straggler_worker.py"
AT = 80


@dataclass(frozen=True)
class Scenario:
    """A job, and the load beside it."""

    words: tuple[str, ...]
    moving_s: float | None = None
    """For how long other load stays on a core, in the mean; None: there is none."""

    @property
    def is_even(self) -> bool:
        return "--slow=none" in self.words


SCENARIOS = {
    "even": Scenario(("--slow=none",)),
    "even, load moves every 0.3 s": Scenario(("--slow=none",), 0.3),
    "even, load moves every 1 s": Scenario(("--slow=none",), 1.0),
    "even, load moves every 3 s": Scenario(("--slow=none",), 3.0),
    "script sleeps for 10 %": Scenario(("--slow=script", "--excess=0.1")),
    "script computes for 10 %": Scenario(("--slow=compute", "--excess=0.1")),
    "reader, 10 % slower than a step": Scenario(("--slow=reader", "--excess=0.1")),
    "nice 19 beside a busy loop": Scenario(("--slow=load",)),
}


@contextlib.contextmanager
def moving_load(mean_s: float | None, seed: int) -> Iterator[None]:
    """A busy process that moves over the cores."""
    if mean_s is None:
        yield
        return
    command = [sys.executable, str(HERE / "moving_load.py"), f"--mean_s={mean_s}", f"--seed={seed}"]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Measured:
    """A job that was run."""

    events: list[dict[str, Any]]
    step_ms: float
    delayed: float
    """The part of the time in which the ranks waited for a core, before a rank became slow."""


def run(scenario: Scenario, steps: int, hidden: int, seed: int) -> Measured:
    """Run a job, and look for stragglers in its records."""
    with tempfile.TemporaryDirectory() as folder, moving_load(scenario.moving_s, seed):
        command = [sys.executable, "-m", "argosy.distributed.launch", "--nproc_per_node=2", str(WORKER)]
        environ = os.environ | {"OMP_NUM_THREADS": "1"}
        command += [f"--at={AT}", f"--steps={steps}", f"--hidden={hidden}", *scenario.words]
        subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        records = JobDirectory.find(Path(folder) / "log").poll()
    return measured(records, scenario.is_even)


def measured(records: list[Record], is_even: bool) -> Measured:
    events = StragglerDetector().update(records)
    counted = [r for r in records if r.kind == "steps" and (is_even or r["step"] < AT)]
    seconds = sum(r["wall_s"] for r in counted)
    return Measured(
        [event for event in events if event["kind"] == "straggler"],
        median(ms for r in counted for ms in r["period_ms"]),
        sum(r.get("delay_s") or 0.0 for r in counted) / seconds if seconds else 0.0,
    )


def row(name: str, jobs: list[Measured]) -> str:
    """A line of the table."""
    is_even = SCENARIOS[name].is_even
    right = [next((e for e in j.events if e["rank"] == 1 and e["step"] >= AT), None) for j in jobs]
    delays = [] if is_even else [str(e["step"] - AT) if e else "-" for e in right]
    causes = [] if is_even else sorted({f"{e['cause']} {e['because']}".strip() for e in right if e})
    false = [e for j in jobs for e in j.events if is_even or e["rank"] != 1 or e["step"] < AT]
    alarms = ", ".join(f"rank {e['rank']} at {e['step']} ({e['cause']} {e['because']})" for e in false)
    step_ms, delayed = (median(getattr(j, what) for j in jobs) for what in ("step_ms", "delayed"))
    return (
        f"| {name} | {step_ms:.0f} ms | {100 * delayed:.0f} % | {', '.join(delays)} | {', '.join(causes)} | "
        f"{len(false)} {alarms} |"
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--even_steps", type=int, default=1000)
    p.add_argument("--hidden", type=int, default=1400, help="1400: some 40 ms per step")
    p.add_argument("--only", default="", help="scenarios whose names contain this")
    args = p.parse_args()
    lines = [
        "| scenario | step | waited for a core | named after steps | cause | false alarms |",
        "|---|---|---|---|---|---|",
    ]
    for name, scenario in SCENARIOS.items():
        if args.only not in name:
            continue
        steps = args.even_steps if scenario.is_even else AT + 60
        jobs = [run(scenario, steps, args.hidden, seed) for seed in harness.in_rounds(args.rounds)]
        lines.append(row(name, jobs))
        print(lines[-1], flush=True)
    load = ", ".join(Path("/proc/loadavg").read_text().split()[:3])
    note = f"\nLoad averages of the machine at the end: {load}; the ranks are pinned to a core each.\n"
    harness.write("stragglers", "\n".join(lines) + "\n" + note, {})


if __name__ == "__main__":
    main()
