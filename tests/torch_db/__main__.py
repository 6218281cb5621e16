"""Compares Argosy with eager mode over torch's databases and random nets: `python -m tests.torch_db --jobs 2`."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

from tests.torch_db.nets import COUNT
from tests.torch_db.outcome import FAILURES, Record
from tests.torch_db.pool import run_all
from tests.torch_db.report import summary, to_markdown
from tests.torch_db.tasks import GROUPS, Task, tasks


@dataclass(frozen=True)
class Options:
    """What to run, and where to write."""

    groups: tuple[str, ...]
    only: str
    samples: int
    num_nets: int
    jobs: int
    out: Path | None
    json: Path | None


def parse(argv: Sequence[str] | None) -> Options:
    p = argparse.ArgumentParser(prog="tests.torch_db", description=__doc__)
    p.add_argument("--only", default="*", help="names that contain this, or match it as a shell pattern")
    p.add_argument("--modules", action="store_true", help="module_db and the samples of our own")
    p.add_argument("--ops", action="store_true", help="op_db")
    p.add_argument("--nets", type=int, metavar="COUNT", help=f"random nets (a whole run has {COUNT})")
    p.add_argument("--samples", type=int, default=32, help="the most samples of an op or a module")
    p.add_argument("--jobs", type=int, default=2, help="processes at a time")
    p.add_argument(
        "--out", type=Path, help="report to write (default: docs/reference/torch-coverage.md of a whole run)"
    )
    p.add_argument("--json", type=Path, help="all results")
    known = p.parse_args(argv)
    asked = {
        "modules": known.modules,
        "samples": known.modules,
        "ops": known.ops,
        "nets": known.nets is not None,
    }
    groups = tuple(group for group in GROUPS if asked[group]) or GROUPS
    is_whole = groups == GROUPS and known.only == "*"
    out = known.out or (Path("docs/reference/torch-coverage.md") if is_whole else None)
    num_nets = COUNT if known.nets is None else known.nets
    return Options(groups, known.only, known.samples, num_nets, known.jobs, out, known.json)


def main(argv: Sequence[str] | None = None) -> int:
    """0: everything is equal or rejected in words. 1: something is wrong, raw, or ended its process."""
    options = parse(argv)
    todo = tasks(options.groups, options.only, options.samples, options.num_nets)
    if not todo:
        print(f"error: nothing is called {options.only!r}", file=sys.stderr)
        return 2
    done = 0

    def progress(task: Task) -> None:
        nonlocal done
        done += 1
        print(f"\r{done}/{len(todo)} {task.group}: {task.name:60.60}", end="", file=sys.stderr, flush=True)

    records = sorted(run_all(todo, options.jobs, progress), key=_order)
    print(file=sys.stderr)
    print(summary(records))
    if options.json:
        options.json.write_text(json.dumps([asdict(record) for record in records], indent=0))
    if options.out:
        options.out.write_text(to_markdown(records))
    return 1 if any(record.kind in FAILURES for record in records) else 0


def _order(record: Record) -> tuple[str, str, str, str, int]:
    return record.group, record.name, record.mode, record.form, record.sample


if __name__ == "__main__":
    sys.exit(main())
