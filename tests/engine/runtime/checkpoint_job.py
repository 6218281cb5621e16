"""A training script for tests of kills and preemption: checkpointed, on one rank or several, signalled if asked to."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy import io, nn, static
from argosy.distributed import fleet
from tests.engine.runtime.sigterm import terminate


class Numbers(io.Dataset[Any]):
    """Distinct samples, with noise."""

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        x = np.sin(np.arange(3) + index) + np.random.rand(3) + random.random()
        return x.astype("float32"), np.array([index % 2], "int64")

    def __len__(self) -> int:
        return 40


def build(hidden: int) -> tuple[Any, Any, list[Any]]:
    """Batch norm, dropout, Momentum, a schedule: all that has a state."""
    x, y = static.data("x", [None, 3]), static.data("y", [None, 1], "int64")
    h = nn.functional.relu(nn.BatchNorm1D(hidden)(nn.Linear(3, hidden)(x)))
    logits = nn.Linear(hidden, 2)(nn.functional.dropout(h, 0.3))
    loss = paddle.mean(nn.functional.cross_entropy(logits, y))
    rate = paddle.optimizer.lr.StepDecay(0.1, step_size=4, gamma=0.7)
    fleet.distributed_optimizer(paddle.optimizer.Momentum(rate, 0.9, weight_decay=0.01)).minimize(loss)
    return loss, rate, [x, y]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=Path)
    p.add_argument("--hidden", type=int, default=5)
    p.add_argument("--every", type=int, default=3)
    p.add_argument("--kill-step", type=int, default=-1)
    p.add_argument("--kill-rank", type=int, default=0)
    p.add_argument("--term-step", type=int, default=-1, help="send SIGTERM in this step")
    p.add_argument("--term-launcher", action="store_true", help="to the launcher, instead of to --kill-rank")
    options = p.parse_args()
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    for seed in (paddle.seed, np.random.seed, random.seed):
        seed(11 + life)
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    loss, rate, feeds = build(options.hidden)
    sampler = io.DistributedBatchSampler(Numbers(), 4, shuffle=True)
    loader = io.DataLoader(Numbers(), feed_list=feeds, batch_sampler=sampler)
    exe, program = static.Executor(), static.default_main_program()
    exe.run(static.default_startup_program())
    checkpoint = fleet.Checkpoint(options.folder / "checkpoints", every=options.every, keep=2)
    for _, _, data in checkpoint.batches(loader, 4, exe, program):
        if life == 0 and rank == options.kill_rank and checkpoint.step == options.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == options.kill_rank and checkpoint.step == options.term_step:
            terminate(os.getppid() if options.term_launcher else os.getpid())
        exe.run(program, feed=data, fetch_list=[loss])
        rate.step()
        print("step", checkpoint.step, flush=True)
    scope = static.global_scope()
    values = {name: scope.find_var(name).get_tensor().numpy() for name in program.persistables()}
    np.savez(options.folder / f"result-{rank}.npz", drawn=np.random.rand(), **values)


if __name__ == "__main__":
    main()
