"""Train a small perceptron on this rank's share of each batch; fail in a chosen way, if asked to.

The result is the sum over many steps of what all ranks computed, so equal files mean equal training.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

BATCH, STEPS = 12, 6


def fail(how: str, out: Path) -> None:
    """Note the time, then fail."""
    (out / "failed_at").write_text(str(time.monotonic()))
    if how == "exception":
        raise ValueError("a bad batch")
    if how == "exit":
        sys.exit(3)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--fail", choices=["exception", "exit", "kill", "stop", "out_of_data"])
    parser.add_argument("--rank", type=int, default=0, help="the rank that fails")
    parser.add_argument("--pause_s", type=float, default=0.0, help="before each step")
    parser.add_argument("--wait_for", type=Path, help="the last step begins when this file exists")
    known = parser.parse_args()
    fleet.init(is_collective=True)
    rank, ranks = fleet.worker_index(), fleet.worker_num()
    x = paddle.static.data("x", [None, 10])
    y = paddle.static.data("y", [None, 1])
    hidden = paddle.static.nn.fc(x, 16, activation="tanh")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(hidden, 1), y))
    paddle.static.default_startup_program().random_seed = 3
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1)).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    numbers = np.random.default_rng(5)
    for step in range(STEPS):
        batch = numbers.standard_normal((BATCH, 10), dtype="float32")
        share = batch[rank::ranks]
        time.sleep(known.pause_s)
        while known.wait_for and step == STEPS - 1 and not known.wait_for.exists():
            time.sleep(0.01)
        if known.fail and rank == known.rank and step == 3:
            if known.fail == "out_of_data":
                break
            fail(known.fail, known.out)
        exe.run(feed={"x": share, "y": share.sum(1, keepdims=True)}, fetch_list=[loss])
        (known.out / f"step.{rank}").write_text(f"{step + 1} {os.getpid()}\n")
    scope = paddle.static.global_scope()
    weights = {
        p.name: np.array(scope.find_var(p.name).get_tensor())
        for p in paddle.static.default_main_program().all_parameters()
    }
    np.savez(known.out / f"weights.{rank}.npz", **weights)


main()
