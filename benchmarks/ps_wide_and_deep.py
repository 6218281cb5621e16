"""Wide and deep with a parameter server: Argosy against Paddle's own, the same program, taking turns.

python benchmarks/ps_wide_and_deep.py                   one server; one worker, then two
python benchmarks/ps_wide_and_deep.py --only paddle     the yardstick alone

Asynchronous, one thread each, batch 512, SGD: 26 slots of 10 floats out of a table of 1,000,001 rows, 13
numbers, three layers of 400, ids from a Zipf law. Paddle is paddlepaddle 2.6.2 in a venv of its own, which is
made on first use. Every row of the table is touched before the time is taken: what that adds to the memory of
a worker and of the server is in the result.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
from orders import resident_mib
from ps_job import Job, running
from wide_and_deep_worker import BATCH

from argosy.engine.env import cache_dir
from argosy.engine.errors import ConfigError

WORKER = Path(__file__).with_name("wide_and_deep_worker.py")
PADDLE = ("paddlepaddle==2.6.2", "numpy<2", "setuptools", "protobuf==4.25.3")


def paddle_python() -> str:
    """The Python of a venv with Paddle; it is made if it is not there."""
    folder = cache_dir() / "paddle-2.6.2"
    python, built = folder / "bin" / "python", folder / "made"
    if not built.exists():
        print(f"making {folder} with {', '.join(PADDLE)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PADDLE], check=True)
        built.touch()
    return str(python)


def fill(job: Job, steps: int) -> str:
    """Touch every row of the table; returns the memory that this adds."""

    def held() -> dict[str, float]:
        worker = job.order(str(steps))[0]["mib"]
        return {"worker": worker, "server": resident_mib(job.servers[0].pid)}

    before = held()
    job.order("fill")
    after = held()
    return "; ".join(f"{who} {before[who]:.0f} -> {after[who]:.0f} MiB" for who in before)


def measure(
    names: Sequence[str], workers: int, rounds: int, steps: int
) -> tuple[str, dict[str, harness.Measured]]:
    """A table of the contenders' times per step, a line of examples/s, and one about memory."""
    results = {name: harness.Measured() for name in names}
    pythons = {name: paddle_python() if name == "paddle" else sys.executable for name in names}
    with contextlib.ExitStack() as stack:
        commands = {name: [python, str(WORKER), name] for name, python in pythons.items()}
        jobs = [stack.enter_context(running(name, words, workers)) for name, words in commands.items()]
        grown = {job.name: fill(job, steps) for job in jobs}
        for _ in harness.in_rounds(rounds):
            for job in jobs:
                slowest = max(answer["seconds"] for answer in job.order(str(steps)))
                results[job.name].seconds.append(slowest / steps)
    title = (
        f"Wide and deep, asynchronous, 1 server, {workers} worker{'s' * (workers > 1)}, batch {BATCH} each"
    )
    lines = [
        f"- {name}: {harness.speed(BATCH * workers, m, 'examples')} (all workers). "
        f"When the table filled: {grown[name]}.\n"
        for name, m in results.items()
    ]
    return harness.table(title, results, names[0]) + "\n" + "".join(lines) + "\n", results


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", choices=("argosy", "paddle"))
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--steps", type=int, default=30, help="of each worker in a round")
    args = p.parse_args()
    if min(args.rounds, args.steps, *args.workers) < 1:
        raise ConfigError("--rounds, --steps and --workers must be 1 or more")
    names = [args.only] if args.only else ["argosy", "paddle"]
    text, results = "", {}
    for workers in args.workers:
        made, results[f"{workers} workers"] = measure(names, workers, args.rounds, args.steps)
        text += made
    if args.only:
        print(text)
    else:
        harness.write("ps-wide-and-deep", text, results)


if __name__ == "__main__":
    main()
