"""Modes of parameter servers, each with its limiting resource.

python benchmarks/ps_modes.py                   both of these; needs root for the lab
python benchmarks/ps_modes.py --only geo        geo against async: wide and deep, a link of 100 Mbit/s
python benchmarks/ps_modes.py --only sync       sync against collective training: 2 trainers on one host

geo     the server on one host of the lab, 2 workers on the other: they synchronize every step, every 10, every 50
sync    an MLP of 4 M parameters, ResNet18 at 32 px; 1 server, 2 servers, or none: 2 ranks that add up by themselves

Jobs take turns; one thread each. Beside the speed stands what a step needs: bytes on the wire against its rate, and
the processor time of servers and trainers against that of all cores. What comes near the step bounds it; the rest
is waiting: trainers for servers, one direction of a link for the other.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dense_worker
import harness
import psutil  # type: ignore[import-untyped]  # it has no annotations
import wide_and_deep_worker
from lab import measure
from lab.network import INTERFACE, Lab
from ps_job import Job, Process, running

from argosy.engine.errors import ConfigError

TRAINERS = 2
SERVERS = {"collective": 0, "sync, 1 server": 1, "sync, 2 servers": 2}
SYNC_STEPS = {"mlp": 10, "resnet18": 4}
TITLES = {"mlp": "MLP 784-1024-1024-1024-1024-10", "resnet18": "ResNet18, 32 px"}
K_STEPS = {"async": 0, "geo, k_steps 10": 10, "geo, k_steps 50": 50}
GEO_STEPS = {"async": 10, "geo, k_steps 10": 20, "geo, k_steps 50": 50}
"""Steps in a round: a multiple of the synchronization interval, with rounds of similar length."""


@dataclass
class Measured(harness.Measured):
    """What one job did, and what it took for that."""

    steps: int = 0
    server_cpu_s: float = 0.0
    worker_cpu_s: float = 0.0
    bytes_to_servers: float = 0.0
    bytes_to_workers: float = 0.0

    def add(self, job: Job, steps: int) -> None:
        """One more round."""
        before = _meters(job)
        slowest = max(answer["seconds"] for answer in job.order(str(steps)))
        self.seconds.append(slowest / steps)
        self.steps += steps
        for name, value in _meters(job).items():
            setattr(self, name, getattr(self, name) + value - before[name])


def _meters(job: Job) -> dict[str, float]:
    """What has been used since the job began."""
    received, sent = _wire(job.servers[0].pid) if job.lab else (0, 0)
    return {
        "server_cpu_s": _cpu_s(job.servers),
        "worker_cpu_s": _cpu_s(job.workers),
        "bytes_to_servers": received,
        "bytes_to_workers": sent,
    }


def _cpu_s(processes: Sequence[Process]) -> float:
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return float(sum(t.user + t.system for t in times))


def _wire(pid: int) -> tuple[int, int]:
    """Bytes that the lab's host of this process has received and sent."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith(f"{INTERFACE}:"))
    return int(counts[0]), int(counts[8])


def take_turns(jobs: Sequence[Job], rounds: int, steps: Mapping[str, int]) -> dict[str, Measured]:
    results = {job.name: Measured() for job in jobs}
    for _ in harness.in_rounds(rounds):
        for job in jobs:
            results[job.name].add(job, steps[job.name])
    return results


def sync(rounds: int, model: str) -> tuple[str, dict[str, Measured]]:
    """Synchronous servers against ranks without any."""
    batch = dense_worker.BATCH[model]
    title = f"{TITLES[model]}: {TRAINERS} trainers, batch {batch} each, one host"
    print(title, file=sys.stderr)
    rate, size = measure.loopback(), dense_worker.parameter_bytes(model)
    words = [sys.executable, dense_worker.__file__, model]
    with contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(running(name, words + ["--collective"] * (not servers), TRAINERS, servers))
            for name, servers in SERVERS.items()
        ]
        results = take_turns(jobs, rounds, dict.fromkeys(SERVERS, SYNC_STEPS[model]))
    text = harness.table(title, results, "collective") + "\n"
    text += (
        f"The parameters are {_mb(size)}; one connection over the loopback moves {rate / 8e9:.1f} GB/s.\n\n"
    )
    for name, m in results.items():
        text += f"- {name}: {harness.speed(TRAINERS * batch, m, 'images')}. "
        if SERVERS[name]:
            # Each trainer sends all gradients and gets all parameters.
            moved = 2 * TRAINERS * size
            text += f"{_mb(moved)} cross the loopback in a step: {_share(8 * moved / rate, m)}. "
        text += _processors(m)
    return text + "\n", results


def geo(rounds: int, rate: str) -> tuple[str, dict[str, Measured]]:
    """Exchanges every so many steps against one in every step, over a slow link."""
    batch = wide_and_deep_worker.BATCH
    title = f"Wide and deep: 1 server, {TRAINERS} workers on another host, {rate}, batch {batch} each"
    print(title, file=sys.stderr)
    words = [sys.executable, wide_and_deep_worker.__file__, "argosy"]
    with Lab(2, rate) as lab, contextlib.ExitStack() as stack:
        assert lab.bits_per_s is not None
        jobs = [
            stack.enter_context(running(name, [*words, f"--k-steps={k}"], TRAINERS, lab=lab))
            for name, k in K_STEPS.items()
        ]
        results = take_turns(jobs, rounds, GEO_STEPS)
    text = harness.table(title, results, "async") + "\n"
    for name, m in results.items():
        text += f"- {name}: {harness.speed(TRAINERS * batch, m, 'examples')}. A step of all workers "
        text += f"{_link(m, lab.bits_per_s, rate)}. {_processors(m)}"
    return text + "\n", results


def _link(m: Measured, bits_per_s: float, rate: str) -> str:
    """What crosses the link in a step, and how long each direction of it is busy with that."""
    up, down = m.bytes_to_servers / m.steps, m.bytes_to_workers / m.steps
    sends = f"sends {_mb(up)}, which takes {_share(8 * up / bits_per_s, m)} at {rate}"
    return f"{sends}, and gets {_mb(down)}: {_share(8 * down / bits_per_s, m)}"


def _processors(m: Measured) -> str:
    """Processor time of a step, and how long all cores need for it."""
    server, worker = m.server_cpu_s / m.steps, m.worker_cpu_s / m.steps
    cores = os.cpu_count() or 1
    of_servers = f"{1000 * server:.1f} ms of them on servers, " if server else ""
    together = f"{1000 * (server + worker):.1f} ms of processor time"
    return f"A step takes {together}, {of_servers}on {cores} cores {_share((server + worker) / cores, m)}.\n"


def _share(seconds: float, m: Measured) -> str:
    """A time, and how much of the median step it is."""
    return f"{1000 * seconds:.1f} ms ({seconds / m.median:.0%} of the step)"


def _mb(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", choices=("sync", "geo"))
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--rate", default="100mbit", help="of the lab's links")
    args = p.parse_args()
    if args.rounds < 1:
        raise ConfigError(f"--rounds {args.rounds}: there is nothing to measure; use 1 or more")
    text, results = "", {}
    if args.only != "sync":  # first: where there can be no lab it fails at once
        text, results["wide and deep"] = geo(args.rounds, args.rate)
    if args.only != "geo":
        for model in SYNC_STEPS:
            made, results[model] = sync(args.rounds, model)
            text += made
    if args.only:
        print(text)
    else:
        harness.write("ps-modes", text, results)


if __name__ == "__main__":
    main()
