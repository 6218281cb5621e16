"""An MLP job that reports what one rank uses: sockets, descriptors, threads, memory, CPU time, time of its steps.

    start-up    to the end of the first step
    steps       a few more
    waiting     the last rank sleeps, the others wait for it

Each rank writes N.json to the directory given, and a line to stderr between the phases, where torch's trace of the
store is.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.collective import world

STEPS, WAIT_S = 5, float(sys.argv[2])
ESTABLISHED = "01"


def sockets() -> list[tuple[int, int]]:
    """Local and remote port of the TCP connections of this process."""
    inodes = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the descriptor of this listing
            continue
        inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()
    ]
    return [
        (int(row[1].rpartition(":")[2], 16), int(row[2].rpartition(":")[2], 16))
        for row in rows
        if row[3] == ESTABLISHED and row[9] in inodes
    ]


def memory_mb() -> dict[str, float]:
    """Resident memory, its share of this process (proportional), and what no other process maps, in MB."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kb = {row[0].removesuffix(":"): int(row[1]) for row in rows}
    private = kb["Private_Clean"] + kb["Private_Dirty"]
    return {"rss": kb["Rss"] / 1024, "pss": kb["Pss"] / 1024, "private": private / 1024}


def note_phase(name: str) -> None:
    print(f"\nphase {name}", file=sys.stderr, flush=True)


note_phase("start-up")
x = paddle.static.data("x", [None, 784])
y = paddle.static.data("y", [None, 1], "int64")
hidden = paddle.static.nn.fc(paddle.static.nn.fc(x, 256, activation="relu"), 128, activation="relu")
loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 10), y)
fleet.init(is_collective=True)
fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01, 0.9)).minimize(loss)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
feed = {"x": np.ones((32, 784), "float32"), "y": np.ones((32, 1), "int64")}


def step() -> float:
    return float(exe.run(feed=feed, fetch_list=[loss])[0])


losses = [step()]
first_step_at, cpu_s = time.time(), sum(os.times()[:2])
note_phase("steps")
began = time.monotonic()
losses += [step() for _ in range(STEPS)]
step_s = (time.monotonic() - began) / STEPS
if WAIT_S:
    note_phase("waiting")
    if fleet.worker_index() == fleet.worker_num() - 1:
        time.sleep(WAIT_S)
    losses.append(step())
note_phase("end")
store_port = int(fleet.worker_endpoints()[0].rpartition(":")[2])
connections = sockets()
report = {
    "first_step_at": first_step_at,
    "cpu_s": cpu_s,
    "step_s": step_s,
    "losses": losses,
    "store_connections": sum(store_port in ports for ports in connections),
    "other_connections": sum(store_port not in ports for ports in connections),
    "descriptors": len(os.listdir("/proc/self/fd")),
    "threads": len(os.listdir("/proc/self/task")),
    "started": sum(world().monitor.local.started.values()),
    **memory_mb(),
}
(Path(sys.argv[1]) / f"{fleet.worker_index()}.json").write_text(json.dumps(report))
