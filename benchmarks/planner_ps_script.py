"""A training script with parameter servers, for planner_ps_accuracy.py: an MLP, or wide and deep.

    fleetrun --server_num=1 --worker_num=2 benchmarks/planner_ps_script.py mlp --mode async

It trains until it is ended. With --times it writes when each step ended, on the clock that all processes of a machine
share.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "wide_and_deep"))

import net
import numpy as np

import argosy as paddle
from argosy.distributed import fleet

HIDDEN = (512, 512, 512)
BATCH = {"mlp": 256, "wide_and_deep": 512}
BATCHES = 20
"""Different ones; then the same again, so that geo has seen all rows after the warm-up."""
Batch = dict[str, Any]


def build(model: str) -> Any:
    """The network; gives its loss."""
    if model == "wide_and_deep":
        numbers, categories, label = net.inputs()
        return net.loss(net.wide_and_deep(numbers, categories), label)
    hidden, label = (
        paddle.static.data("x", [None, 784], "float32"),
        paddle.static.data("y", [None, 1], "int64"),
    )
    for size in HIDDEN:
        hidden = paddle.static.nn.fc(hidden, size, activation="relu")
    return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 10), label)


def batches(model: str, seed: int) -> list[Batch]:
    """The batches of a worker."""
    rng, size = np.random.default_rng(seed), BATCH[model]
    if model == "mlp":
        return [
            {"x": rng.standard_normal((size, 784), np.float32), "y": rng.integers(0, 10, (size, 1))}
            for _ in range(BATCHES)
        ]
    found = []
    for _ in range(BATCHES):
        ids = rng.zipf(1.3, (net.CATEGORIES, size, 1)) % net.TABLE_ROWS
        slots = {f"C{i + 1}": slot for i, slot in enumerate(ids)}
        numbers, label = rng.random((size, 13), np.float32), rng.integers(0, 2, (size, 1))
        found.append({"dense_input": numbers, "label": label, **slots})
    return found


def strategy_of(mode: str, k_steps: int) -> fleet.DistributedStrategy:
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    if mode == "geo":
        strategy.a_sync_configs = {"k_steps": k_steps}
    return strategy


def work(model: str, loss: Any, times: Path | None) -> None:
    """Train until this process is ended."""
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    program, drawn = paddle.static.default_main_program(), batches(model, fleet.worker_index())
    file = None if times is None else (times / f"worker{fleet.worker_index()}").open("w", buffering=1)
    while True:
        for batch in drawn:
            exe.run(program, feed=batch, fetch_list=[loss])
            if file is not None:
                file.write(f"{time.monotonic():.6f}\n")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=sorted(BATCH))
    p.add_argument("--mode", choices=("sync", "async", "geo"), default="async")
    p.add_argument("--k-steps", type=int, default=10)
    p.add_argument("--times", type=Path, help="write the ends of steps into this folder")
    p.add_argument("--cores", type=int, nargs="*", help="run servers and workers on these cores")
    args = p.parse_args()
    if args.cores:
        is_server = os.environ.get("TRAINING_ROLE") == "PSERVER"
        os.sched_setaffinity(0, {args.cores[0] if is_server else args.cores[1]})
    paddle.enable_static()
    fleet.init()
    loss = build(args.model)
    optimizer = paddle.optimizer.SGD(0.0001)
    fleet.distributed_optimizer(optimizer, strategy_of(args.mode, args.k_steps)).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        work(args.model, loss, args.times)


if __name__ == "__main__":
    main()
