"""Contenders that take turns: each in a process of its own, one at a time, many short rounds.

These machines are noisy by a factor of two, so only ratios within one run count. Every contender is built
and warmed up first; then rounds go round the table. A contender is a function that makes a step function.
"""

# SPDX-License-Identifier: Apache-2.0
import datetime
import json
import multiprocessing as mp
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Step = Callable[[], object]
RESULTS = Path(__file__).parent / "results"


@dataclass
class Measured:
    """What one contender did."""

    seconds: list[float] = field(default_factory=list)
    build_s: float = 0.0
    peak_mib: float = 0.0

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def _serve(connection: Connection, make: Callable[..., Step], arguments: dict[str, Any]) -> None:
    began = time.perf_counter()
    step = make(**arguments)
    step()
    built = time.perf_counter() - began
    step()
    connection.send(built)
    while (count := connection.recv()) is not None:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        connection.send((times, peak))


def measure(
    contenders: Mapping[str, Callable[..., Step]], rounds: int, steps: int = 1, **arguments: Any
) -> dict[str, Measured]:
    """Let the contenders take turns: in each round each runs `steps` steps while the others wait."""
    context = mp.get_context("spawn")
    found = {name: Measured() for name in contenders}
    running = {}
    try:
        for name, make in contenders.items():
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
            process.start()
            theirs.close()
            running[name] = (process, ours)
            found[name].build_s = ours.recv()
        for number in range(rounds):
            for name, (_, connection) in running.items():
                connection.send(steps)
                times, found[name].peak_mib = connection.recv()
                found[name].seconds += times
            print(f"\r  round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    finally:
        for process, connection in running.values():
            if process.is_alive():
                connection.send(None)
            process.join(10)
    print(file=sys.stderr)
    return found


def table(title: str, found: Mapping[str, Measured], base: str) -> str:
    """A Markdown table: times, and how many times as fast as each other the base is."""
    own = found[base]
    lines = [
        f"### {title}",
        "",
        f"| contender | best ms | median ms | {base} is faster by (best) | (median) | peak MiB | build s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, m in found.items():
        ratios = f"{m.best / own.best:.3f} | {m.median / own.median:.3f}"
        times = f"{1000 * m.best:.2f} | {1000 * m.median:.2f}"
        lines.append(f"| {name} | {times} | {ratios} | {m.peak_mib:.0f} | {m.build_s:.1f} |")
    return "\n".join(lines) + "\n"


def write(name: str, text: str, found: Mapping[str, Mapping[str, Measured]]) -> Path:
    """Keep a dated result: the tables, the command, the machine, every single time."""
    import torch

    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    machine = (
        f"{_cpu()}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"
    )
    path = RESULTS / f"{today}-{name}.md"
    path.write_text(f"# {name}, {today}\n\n`{' '.join(['python', *sys.argv])}` on {machine}.\n\n{text}")
    raw = {case: {who: vars(m) for who, m in one.items()} for case, one in found.items()}
    path.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    print(text)
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
