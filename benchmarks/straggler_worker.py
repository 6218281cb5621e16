"""A training with one slow rank, for benchmarks/stragglers.py and tests/jobs/test_stragglers.py.

fleetrun --nproc_per_node=2 benchmarks/straggler_worker.py --steps 200 --slow load --at 100

    none     all ranks are even
    compute  the rank computes for 10 % longer (--excess): more work inside the step's process, between the steps' calls
    load     it has nice 19, and a process beside it on its core uses it, too
    reader   its reader sleeps before each batch
    script   it sleeps between two steps
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

BATCH, WIDTH = 64, 256


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--slow", choices=["none", "compute", "load", "reader", "script"], default="none")
    p.add_argument("--at", type=int, default=100, help="the first slow step")
    p.add_argument("--rank", type=int, default=1, help="the slow rank")
    p.add_argument("--excess", type=float, default=0.1, help="how much longer a slow step takes")
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--layers", type=int, default=3)
    return p.parse_args()


def build(hidden: int, layers: int) -> tuple[Any, Any, Any]:
    """The feeds, and the loss."""
    x, y = paddle.static.data("x", [BATCH, WIDTH]), paddle.static.data("y", [BATCH, 1])
    value = x
    for _ in range(layers):
        value = paddle.static.nn.fc(value, hidden, activation="tanh")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(value, 1), y))
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.01)).minimize(loss)
    return x, y, loss


def main() -> None:
    given = parse()
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    is_slow = given.slow != "none" and rank == given.rank
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    x, y, loss = build(given.hidden, given.layers)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    pause_s = 0.0

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        numbers = np.random.default_rng(rank)
        for _ in range(given.steps):
            if is_slow and given.slow == "reader" and pause_s:
                time.sleep(pause_s)
            yield (
                numbers.standard_normal((BATCH, WIDTH), dtype="float32"),
                numbers.standard_normal((BATCH, 1), dtype="float32"),
            )

    loader = paddle.io.DataLoader.from_generator(feed_list=[x, y], capacity=2)
    loader.set_batch_generator(batches)
    load: subprocess.Popen[bytes] | None = None
    durations: list[float] = []
    try:
        for step, batch in enumerate(loader()):
            if step + 1 >= given.at and is_slow:
                usual_s = float(np.median(durations[-50:]))
                pause_s = given.excess * usual_s
                if given.slow == "reader":
                    pause_s += usual_s  # the reader works while the step computes
                if given.slow == "script":
                    time.sleep(pause_s)
                if given.slow == "compute":
                    until = time.perf_counter() + pause_s
                    while time.perf_counter() < until:
                        pass
                if given.slow == "load" and load is None:
                    os.nice(19)
                    load = subprocess.Popen([sys.executable, "-c", _LOAD, str(os.getpid())])
            began = time.perf_counter()
            feed: Any = batch
            exe.run(feed=feed, fetch_list=[loss])
            durations.append(time.perf_counter() - began)
    finally:
        if load is not None:
            load.kill()
            load.wait()
    Path(f"done.{rank}").write_text(f"{np.median(durations):.6f}\n")


_LOAD = """import os, sys
parent = int(sys.argv[1])
os.nice(-4) if os.geteuid() == 0 else None
while os.getppid() == parent:
    for _ in range(100_000): pass
"""
"""Inherits nice 19 and the core of the rank; as root it has nice 15: two and a half times as much of the core."""

if __name__ == "__main__":
    main()
