"""Run parameter servers and trainers over a simulated clock, network and disk, one job for each seed.

python -m tests.simulation --seconds 3600          as many seeds as that time allows; `make soak`
python -m tests.simulation --seed 4711 --trace     one seed again, with everything that happened
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--seed", type=int, help="run this one only")
    p.add_argument("--first", type=int, default=0, help="the first seed")
    p.add_argument("--seeds", type=int, default=10_000, help="how many seeds")
    p.add_argument("--seconds", type=float, help="run for so long instead")
    p.add_argument("--trace", action="store_true", help="print what happens, with the simulated time")
    p.add_argument("--report", type=Path, help="write the totals to this file, as JSON")
    return p.parse_args()


def run_one(seed: int, traces: bool) -> int:
    from tests.simulation.job import Job

    job = Job(seed, None)

    def trace(text: str) -> None:
        print(f"{job.world.now - 1000:10.4f}  {text}")

    if traces:
        job._trace = trace
        _log_to(lambda text: trace(f"[{job.world.current.process.name}] {text}"))
    print(f"seed {seed}: {job.scenario}")
    outcome = job.run()
    for text in outcome.violations:
        print(f"  {text}")
    print(f"  {dict(outcome.counts)}, {job.world.switches} switches, {job.network.messages} messages")
    print(f"  {'wrong' if outcome.violations else 'right'}, digest {outcome.digest:016x}")
    return int(bool(outcome.violations))


def _log_to(trace: Callable[[str], None]) -> None:
    class ToTrace(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trace(record.getMessage())

    from argosy.engine.log import logger

    logger.handlers, logger.propagate = [ToTrace()], False
    logger.setLevel(logging.DEBUG)


def run_many(options: argparse.Namespace) -> int:
    from tests.simulation.job import simulate

    began, counts, wrong, seed = time.monotonic(), Counter[str](), list[int](), options.first
    printed_at = began
    while True:
        now = time.monotonic()
        if now - began > options.seconds if options.seconds else seed >= options.first + options.seeds:
            break
        outcome = simulate(seed)
        counts += outcome.counts
        if outcome.violations:
            wrong.append(seed)
            print(f"seed {seed}: {'; '.join(outcome.violations[:3])}", flush=True)
        seed += 1
        if now - printed_at > 30:
            printed_at = now
            print(f"{seed - options.first} seeds in {now - began:.0f} s, {len(wrong)} wrong", flush=True)
    seconds = time.monotonic() - began
    report = {"seeds": seed - options.first, "seconds": round(seconds, 1), "wrong": wrong, **dict(counts)}
    print(
        f"{report['seeds']} seeds in {seconds:.0f} s, {report['seeds'] / seconds * 3600:.0f} an hour: {report}"
    )
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(wrong))


def main() -> int:
    options = parse_arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings have the order of their hashes
        arguments = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})
    from argosy.engine.log import logger

    logger.handlers = [logging.NullHandler()]
    return run_many(options) if options.seed is None else run_one(options.seed, options.trace)


if __name__ == "__main__":
    sys.exit(main())
