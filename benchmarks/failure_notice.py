"""From a kill to the line in fleetrun's output that names it, on every engine: a rank, and a node.

python benchmarks/failure_notice.py --rounds 3

Runs the tests of killed ranks and nodes (tests/engines), which measure it. The kill comes before the engine's own
notice, so these seconds are an upper bound of the time after it.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import harness

ROOT = Path(__file__).parents[1]
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-n0",
    "tests/engines",
    "-m",
    "engines and not slow",
    "-rs",
    "-v",
    "-o",
    "junit_family=xunit1",
]
SELECTED = "(killed_rank or killed_node) and not replaced"
GOAL_S = 5.0


def measure(seconds: dict[tuple[str, str], list[float]]) -> None:
    """Add one round: by engine, and by what was killed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        subprocess.run([*PYTEST, "-k", SELECTED, f"--junitxml={report}"], cwd=ROOT, check=True)
        for case in ElementTree.parse(report).iter("testcase"):
            for item in case.iter("property"):
                if item.get("name") == "named_after_s":
                    seconds[_engine(case), _killed(case)].append(float(item.get("value") or "nan"))


def _engine(case: ElementTree.Element) -> str:
    module = (case.get("classname") or "").rpartition("test_")[2]
    kind = re.search(r"\[(\w+)\]", case.get("name") or "")
    return f"{module} ({kind[1]})" if kind else module


def _killed(case: ElementTree.Element) -> str:
    return "rank" if "killed_rank" in (case.get("name") or "") else "node"


def table(seconds: dict[tuple[str, str], list[float]]) -> str:
    rows = ["| engine | killed | median s | worst s |", "|---|---|---|---|"]
    for (engine, killed), times in sorted(seconds.items()):
        rows.append(f"| {engine} | {killed} | {statistics.median(times):.2f} | {max(times):.2f} |")
    worst = max(max(times) for times in seconds.values())
    rounds, load = len(next(iter(seconds.values()))), os.getloadavg()[1]
    rows += ["", f"Rounds: {rounds}; asked: {GOAL_S:g} s, worst: {worst:.2f} s."]
    rows += ["", f"Load average of the last 5 minutes: {load:.1f}."]
    return "\n".join(rows) + "\n"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(args.rounds):
        measure(seconds)
    measured = {
        f"{engine}, {killed}": {"fleetrun": harness.Measured(times)}
        for (engine, killed), times in sorted(seconds.items())
    }
    harness.write("failure-notice", table(seconds), measured)


if __name__ == "__main__":
    main()
