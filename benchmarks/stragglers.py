"""Straggler detection on real jobs of two ranks: after how many steps, which cause, and alarms of even jobs.

python benchmarks/stragglers.py --rounds 3      some minutes; straggler_worker.py describes what makes a rank slow
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness

from argosy.engine.metrics.job_directory import JobDirectory
from argosy.engine.metrics.stragglers import StragglerDetector

WORKER = Path(__file__).parent / "straggler_worker.py"
AT = 80
SCENARIOS = {
    "even": ["--slow=none"],
    "10 % between the steps": ["--slow=compute", "--excess=0.1"],
    "20 % between the steps": ["--slow=compute", "--excess=0.2"],
    "nice 19 beside a busy loop": ["--slow=load"],
    "reader as slow as a step": ["--slow=reader", "--excess=0.3"],
    "script sleeps for 30 %": ["--slow=script", "--excess=0.3"],
}


def run(words: list[str], steps: int) -> list[dict[str, Any]]:
    """The events of a job."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "argosy.distributed.launch", "--nproc_per_node=2", str(WORKER)]
        environ = os.environ | {"OMP_NUM_THREADS": "1"}
        command += [f"--at={AT}", f"--steps={steps}", *words]
        subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        events = StragglerDetector().update(JobDirectory.find(Path(folder) / "log").poll())
        return [event for event in events if event["kind"] == "straggler"]


def row(name: str, jobs: list[list[dict[str, Any]]]) -> str:
    right = [next((e for e in events if e["rank"] == 1 and e["step"] >= AT), None) for events in jobs]
    delays = [str(e["step"] - AT) if e else "-" for e in right]
    causes = sorted({f"{e['cause']} {e['because']}".strip() for e in right if e})
    early = [e for events in jobs for e in events if e["rank"] != 1 or e["step"] < AT or name == "even"]
    others = ", ".join(f"rank {e['rank']} at {e['step']} ({e['cause']} {e['because']})" for e in early)
    if name == "even":
        delays, causes = [], []
    return f"| {name} | {', '.join(delays)} | {', '.join(causes)} | {len(early)} {others} |"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--even_steps", type=int, default=1000)
    args = p.parse_args()
    lines = ["| scenario | named after steps | cause | other alarms |", "|---|---|---|---|"]
    for name, words in SCENARIOS.items():
        steps = args.even_steps if name == "even" else AT + 60
        lines.append(row(name, [run(words, steps) for _ in harness.in_rounds(args.rounds)]))
        print(lines[-1])
    load = ", ".join(Path("/proc/loadavg").read_text().split()[:3])
    note = f"\nLoad averages of the machine at the end: {load}; the ranks are pinned to a core each.\n"
    harness.write("stragglers", "\n".join(lines) + "\n" + note, {})


if __name__ == "__main__":
    main()
