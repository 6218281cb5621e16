"""What it costs that a server logs every push before it acknowledges it: asynchronous wide and deep.

python benchmarks/ps_durability.py --rounds 10

The contenders, one server and one or two workers each, take turns: no state directory; snapshots once a minute; a log;
a log that waits for the disk. The program is that of ps_wide_and_deep.py.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
from ps_job import running
from wide_and_deep_worker import BATCH

WORKER = Path(__file__).with_name("wide_and_deep_worker.py")
CONTENDERS = ("snapshot", "log", "disk", "no state")


def variables(name: str, folder: str) -> dict[str, str]:
    """What a server of this contender finds in its environment."""
    if name == "no state":
        return {}
    return {"ARGOSY_SERVER_STATE": f"{folder}/{name}", "ARGOSY_SERVER_DURABILITY": name}


def measure(workers: int, rounds: int, steps: int) -> tuple[str, dict[str, harness.Measured]]:
    results = {name: harness.Measured() for name in CONTENDERS}
    command = [sys.executable, str(WORKER), "argosy"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(running(name, command, workers, environ=variables(name, folder)))
            for name in CONTENDERS
        ]
        for job in jobs:
            job.order("fill")
        for _ in harness.in_rounds(rounds):
            for job in jobs:
                slowest = max(answer["seconds"] for answer in job.order(str(steps)))
                results[job.name].seconds.append(slowest / steps)
    title = (
        f"Wide and deep, asynchronous, 1 server, {workers} worker{'s' * (workers > 1)}, batch {BATCH} each"
    )
    return harness.table(title, results, CONTENDERS[0]) + "\n", results


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--steps", type=int, default=30, help="of each worker in a round")
    args = p.parse_args()
    text, results = "", {}
    for workers in args.workers:
        made, results[f"{workers} workers"] = measure(workers, args.rounds, args.steps)
        text += made
    harness.write("ps-durability", text, results)


if __name__ == "__main__":
    main()
