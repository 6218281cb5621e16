"""What a job of N ranks costs on one host: store requests, connections, memory, CPU time, time to the first step.

python benchmarks/scale.py --ranks 2 4 8 16 32 64
python benchmarks/scale.py --ranks 2 4 8 --sockets     all collectives use sockets, as between hosts

Requests are counted from torch's trace of the store, so they do not depend on how busy the machine is; the times do.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent))

import harness

SCRIPT = Path(__file__).parent / "scale" / "mlp.py"
FLEETRUN = [sys.executable, "-m", "argosy.engine.launch"]
TRACED = re.compile(r"TCPStoreLibUvBackend\.cpp:\d+\] \[c10d - trace\] (\w+)")
PHASE = re.compile(r"^phase (\S+)$")
WAIT_S = 6.0
TIMEOUT_S = 1200


@dataclass
class Run:
    """One job: what its ranks reported, and the store requests of each phase, by kind."""

    ranks: list[dict[str, float]]
    requests: dict[str, Counter[str]]
    first_step_s: float

    def total(self, name: str) -> float:
        return sum(rank[name] for rank in self.ranks)

    def mean(self, name: str) -> float:
        return mean(rank[name] for rank in self.ranks)

    def peak(self, name: str) -> float:
        return max(rank[name] for rank in self.ranks)


def run(num_ranks: int, use_sockets: bool, wait_s: float = WAIT_S, traced: bool = True) -> Run:
    """Run the MLP job with so many ranks; raises if it fails."""
    variables = {"ARGOSY_BACKGROUND_SEARCH": "0"} | ({"ARGOSY_SHM": "0"} if use_sockets else {})
    if traced:
        variables |= {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    with tempfile.TemporaryDirectory() as folder:
        command = [*FLEETRUN, f"--nproc_per_node={num_ranks}", "--quiet", str(SCRIPT), folder, str(wait_s)]
        began = time.time()
        subprocess.run(
            command,
            cwd=folder,
            env=os.environ | variables,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
        ranks = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(num_ranks)]
        log = (Path(folder) / "log" / "workerlog.0").read_text(errors="replace")
    first_step_s = max(rank["first_step_at"] for rank in ranks) - began
    return Run(ranks, count_requests(log), first_step_s)


def count_requests(log: str) -> dict[str, Counter[str]]:
    """The store requests of each phase, by kind, from the log of rank 0."""
    counts: dict[str, Counter[str]] = {}
    for line in log.splitlines():
        if phase := PHASE.match(line):
            counts[phase[1]] = Counter()
        elif counts and (request := TRACED.search(line)):
            counts[list(counts)[-1]][request[1]] += 1
    return counts


HEADER = """\
| ranks | first step (s) | CPU s per rank | step (ms) | store requests to the first step | per rank \
| store requests per second in a wait | store connections | other connections, most of a rank \
| descriptors, most of a rank | threads, most of a rank | RSS per rank (MB) | PSS per rank (MB) |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def row(num_ranks: int, measured: Run) -> str:
    """A line of the table."""
    start_up = measured.requests["start-up"].total()
    waiting = measured.requests["waiting"].total() / WAIT_S
    cells = (
        f"{num_ranks}",
        f"{measured.first_step_s:.1f}",
        f"{measured.mean('cpu_s'):.2f}",
        f"{1000 * measured.mean('step_s'):.1f}",
        f"{start_up}",
        f"{start_up / num_ranks:.1f}",
        f"{waiting:.0f}",
        # Both ends of a connection to the store are sockets of ranks.
        f"{measured.total('store_connections') / 2:.0f}",
        f"{measured.peak('other_connections')}",
        f"{measured.peak('descriptors')}",
        f"{measured.peak('threads')}",
        f"{measured.mean('rss'):.0f}",
        f"{measured.mean('pss'):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    p.add_argument("--sockets", action="store_true", help="no shared memory")
    p.add_argument("--dry", action="store_true", help="print the table, write no results")
    args = p.parse_args()
    lines, results = [HEADER], {}
    for num_ranks in args.ranks:
        measured = run(num_ranks, args.sockets)
        lines.append(row(num_ranks, measured))
        print(lines[-1], {k: dict(v) for k, v in measured.requests.items()}, file=sys.stderr, flush=True)
        results[f"{num_ranks} ranks"] = {"fleetrun": harness.Measured(seconds=[measured.first_step_s])}
    text = "\n".join(lines) + "\n"
    if args.dry:
        print(text)
        return
    harness.write("scale-sockets" if args.sockets else "scale", text, results)


if __name__ == "__main__":
    main()
