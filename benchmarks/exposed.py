"""How much communication a training step shows: overlap on against off, from timelines of both.

python benchmarks/exposed.py                   ResNet50, 2 hosts x 2 ranks in the lab, 1 Gbit/s, batch 8, 64 px

Exposed is the time in which a rank's main thread waits for a collective, or runs it.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import functools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import distributed_step
import harness
from lab.network import Lab

from argosy.timeline import read, record, summarize

WARM = 2
"""Steps that the harness takes before it measures."""
_open = contextlib.ExitStack()


def recorded(batch: int, pixels: int, folder: str, last: int, **switches: Any) -> harness.Step:
    """A contender whose measured steps are recorded."""
    _open.enter_context(record(folder, f"{WARM + 1}-{last}"))  # written with the last step
    return distributed_step.argosy(batch, pixels, **switches)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--rate", default="1gbit", help="of the lab's links")
    args = p.parse_args()
    steps, last = 2, WARM + 2 * args.rounds
    ways: dict[str, dict[str, Any]] = {
        "hierarchical": distributed_step.TWO_STAGES,
        "hierarchical, overlap": {**distributed_step.TWO_STAGES, **distributed_step.OVERLAP},
        "flat": {},
        "flat, overlap": distributed_step.OVERLAP,
        "flat, overlap, 2 communicators": {**distributed_step.OVERLAP, "nccl_comm_num": 2},
    }
    title = f"ResNet50, 2 hosts x 2 ranks, {args.rate}, batch 8 each, 64 px"
    with tempfile.TemporaryDirectory() as folder, Lab(2, args.rate) as lab:
        folders = {name: str(Path(folder) / str(number)) for number, name in enumerate(ways)}
        contenders = {
            name: functools.partial(recorded, folder=folders[name], last=last, **ways[name]) for name in ways
        }
        results = harness.measure(contenders, args.rounds, steps, 4, lab, batch=8, pixels=64)
        summaries = {name: summarize(read(folders[name])) for name in ways}
    lines = [
        "| way | step ms | communication ms | exposed ms | of it without overlap |",
        "|---|---|---|---|---|",
    ]
    exposed: dict[str, float] = {}
    for name, summary in summaries.items():
        columns = [
            statistics.median(getattr(rank, field) for rank in summary.ranks)
            for field in ("step_ms", "communication_ms", "exposed_ms")
        ]
        exposed[name] = columns[-1]
        share = columns[-1] / exposed[name.split(",")[0]]
        lines.append(f"| {name} | " + " | ".join(f"{c:.0f}" for c in columns) + f" | {share:.2f} |")
    text = f"### {title}: exposed communication, median over steps and ranks\n\n" + "\n".join(lines) + "\n"
    harness.write("exposed-communication", text, {title: results})


if __name__ == "__main__":
    main()
