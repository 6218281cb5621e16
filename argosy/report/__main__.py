"""`python -m argosy.report DIR`: write the report of a job, running or ended, as one HTML file."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import sys
from collections.abc import Sequence

from argosy.engine.errors import ConfigError
from argosy.report import compare, report, write, write_comparison


def parser() -> argparse.ArgumentParser:
    """The arguments of `python -m argosy.report`."""
    p = argparse.ArgumentParser(prog="python -m argosy.report", description=__doc__)
    p.add_argument(
        "directory", metavar="DIR", nargs="?", help="the log directory of a job (fleetrun --log_dir)"
    )
    p.add_argument(
        "--output", metavar="FILE", help="default: DIR/report.html, or DIR/compare.html with --compare"
    )
    p.add_argument(
        "--compare",
        metavar="OTHER",
        nargs="+",
        help="compare with this earlier job; or, without DIR, the two jobs A B, of which A is the baseline",
    )
    p.add_argument("--json", action="store_true", help="print the numbers as JSON instead of writing a page")
    p.add_argument("--quiet", action="store_true", help="print only errors")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0, or 2 if the arguments are invalid, there is no job, or the file cannot be written."""
    known = parser().parse_args(argv)
    try:
        jobs = _jobs(known.directory, known.compare)
        if known.json:
            print(json.dumps(report(jobs[0]) if len(jobs) == 1 else compare(jobs[0], jobs[1]), indent=1))
            return 0
        path = (
            write(jobs[0], known.output)
            if len(jobs) == 1
            else write_comparison(jobs[0], jobs[1], known.output)
        )
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"error: the report cannot be written: {e}; give another --output FILE", file=sys.stderr)
        return 2
    if not known.quiet:
        print(f"{'report' if len(jobs) == 1 else 'comparison'}: {path}")
    return 0


def _jobs(directory: str | None, others: list[str] | None) -> list[str]:
    """One directory, or the baseline and the other one."""
    jobs = [*(others or []), *([directory] if directory else [])]
    if not jobs:
        raise ConfigError("no job was given; give its log directory: python -m argosy.report log")
    if others and len(jobs) != 2:
        raise ConfigError(f"--compare takes two jobs, got {len(jobs)}: DIR --compare OTHER, or --compare A B")
    return jobs


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
