"""What the launcher's monitor costs: the processor time of its thread while many ranks write records.

python benchmarks/monitor_cost.py --ranks 64 --seconds 30

A child writes what ranks write: twice a second a `steps` record of --steps steps, a `values` and a `progress` record.
The monitor runs with the straggler detector, and with or without the live block, TensorBoard and Prometheus.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness

from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.job_record import JobRecord, Place
from argosy.engine.launch.live import Live
from argosy.engine.launch.monitor import Monitor, Sink
from argosy.engine.launch.screen import Screen
from argosy.engine.metrics.prometheus import PrometheusSink
from argosy.engine.metrics.tensorboard import TensorBoardSink

_LISTS = ("period_ms", "busy_ms", "exposed_ms", "outside_ms", "input_ms")


def write_records(directory: str, ranks: int, num_steps: int) -> None:
    """The child: write until it is terminated."""
    files = [
        (Path(directory) / "metrics" / f"rank{rank}.jsonl").open("ab", buffering=0) for rank in range(ranks)
    ]
    step = 0
    while True:
        step += num_steps
        began = time.monotonic()
        for rank, file in enumerate(files):
            common = {"time": time.time(), "step": step}
            lists = {name: [20.0 + (rank + i) % 7 / 100 for i in range(num_steps)] for name in _LISTS}
            steps = {
                "kind": "steps",
                "steps": num_steps,
                "group": 1,
                "examples": 640,
                "sent_bytes": 10**6,
                "rss": 10**9,
            }
            values = {"kind": "values", "values": {"loss": 1 / step, "lr": 0.1}, "reduce": {"lr": "last"}}
            progress = {"kind": "progress", "epoch": 1, "epochs": 2, "batch": step, "batches": 10**6}
            usage = {"wall_s": 0.5, "cpu_s": 0.4, "delay_s": 0.0, "minor_faults": 3, "major_faults": 0}
            for record in ({**steps, **lists, **usage}, values, progress):
                file.write(json.dumps({**common, **record}).encode() + b"\n")
        time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))


def measure(ranks: int, num_steps: int, seconds: float, has_stragglers: bool, is_full: bool) -> float:
    """Processor seconds of this process per second; the main thread sleeps."""
    with tempfile.TemporaryDirectory() as directory:
        record = JobRecord(directory, Configuration("train.py"))
        record.start(Place("rank", rank, "host") for rank in range(ranks))
        master, slave = os.openpty()
        threading.Thread(target=_drain, args=(master,), daemon=True).start()
        sinks: list[Sink] = []
        if is_full:
            sinks = [TensorBoardSink(f"{directory}/tb"), PrometheusSink("127.0.0.1", 0, None)]
        numbers = ["--ranks", str(ranks), "--steps", str(num_steps)]
        writer = subprocess.Popen([sys.executable, __file__, "--write", directory, *numbers])
        try:
            monitor = Monitor(directory, record, Live(Screen(slave), "train.py") if is_full else None, sinks)
            if not has_stragglers:
                monitor._detector = None
            time.sleep(3.0)
            before, began = time.process_time(), time.monotonic()
            time.sleep(seconds)
            spent = (time.process_time() - before) / (time.monotonic() - began)
            monitor.stop()
            assert len(monitor.view.ranks) == ranks
        finally:
            writer.terminate()
            writer.wait()
            os.close(slave)
    return spent


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except OSError:
        os.close(descriptor)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=64)
    p.add_argument("--steps", type=int, default=5, help="of a record: twice as many per second")
    p.add_argument("--seconds", type=float, default=30.0)
    p.add_argument("--write", metavar="DIR", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.write:
        write_records(args.write, args.ranks, args.steps)
    parts = {
        "records": (False, False),
        "and stragglers": (True, False),
        "and live block, TensorBoard, Prometheus": (True, True),
    }
    rows = {name: measure(args.ranks, args.steps, args.seconds, *which) for name, which in parts.items()}
    lines = [
        f"### {args.ranks} ranks, {2 * args.steps} steps/s",
        "",
        "| monitor with | % of a core |",
        "|---|---|",
    ]
    lines += [f"| {name} | {100 * share:.2f} |" for name, share in rows.items()]
    harness.write("monitor-cost", "\n".join([*lines, ""]), {})


if __name__ == "__main__":
    main()
