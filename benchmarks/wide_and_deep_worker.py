"""One process of a wide-and-deep job with parameter servers: the same program on Paddle and on Argosy.

    python benchmarks/wide_and_deep_worker.py paddle        under a venv with paddlepaddle 2.6.2
    python benchmarks/wide_and_deep_worker.py argosy --k-steps 10           geo; without: async

Role and addresses come from the environment; benchmarks/ps_wide_and_deep.py and ps_modes.py start it,
benchmarks/orders.py defines the commands of a worker.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orders
from orders import Batch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "wide_and_deep"))

BATCH = 512
ZIPF = 1.3
BATCHES = 400
"""Drawn before the time is taken; then the same ones again."""


def drawn(net: Any, seed: int, count: int = BATCHES) -> list[Batch]:
    """Batches whose ids come from a Zipf law."""
    rng = np.random.default_rng(seed)
    ids = rng.zipf(ZIPF, (count, net.CATEGORIES, BATCH, 1)) % net.TABLE_ROWS
    return [_batch(slots, rng) for slots in ids]


def covering(net: Any) -> Iterator[Batch]:
    """Batches in which every id of the table stands."""
    rng, each = np.random.default_rng(0), net.CATEGORIES * BATCH
    for first in range(0, net.TABLE_ROWS, each):
        ids = np.arange(first, first + each) % net.TABLE_ROWS
        yield _batch(ids.reshape(net.CATEGORIES, BATCH, 1), rng)


def _batch(slots: Any, rng: np.random.Generator) -> Batch:
    categories = {f"C{i + 1}": slot for i, slot in enumerate(slots)}
    numbers, label = rng.random((BATCH, 13), np.float32), rng.integers(0, 2, (BATCH, 1))
    return {"dense_input": numbers, "label": label, **categories}


def build(net: Any, paddle: Any, fleet: Any, k_steps: int) -> Any:
    """The program of the example, trained by SGD, asynchronously or, with k_steps, in geo mode."""
    paddle.enable_static()
    fleet.init()
    numbers, categories, label = net.inputs()
    loss = net.loss(net.wide_and_deep(numbers, categories), label)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    if k_steps:
        strategy.a_sync_configs = {"k_steps": k_steps}
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.0001), strategy).minimize(loss)
    return loss


def work(net: Any, paddle: Any, fleet: Any, loss: Any) -> None:
    """Train on order; `fill` touches every row of the table once."""
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    program = paddle.static.default_main_program()

    def step(batch: Batch) -> float:
        (value,) = exe.run(program, feed=batch, fetch_list=[loss])
        return float(value.item())

    endless = itertools.cycle(drawn(net, seed=fleet.worker_index()))
    orders.follow(step, endless, fill=functools.partial(covering, net))
    fleet.stop_worker()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("framework", choices=("paddle", "argosy"))
    p.add_argument("--k-steps", type=int, default=0, help="geo: steps between two synchronizations")
    args = p.parse_args()
    name = args.framework
    paddle = importlib.import_module(name)
    # The example says `import argosy as paddle`: here it gets the framework that was asked for.
    sys.modules["argosy"] = paddle
    net = importlib.import_module("net")
    fleet = importlib.import_module(f"{name}.distributed.fleet")
    loss = build(net, paddle, fleet, args.k_steps)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        work(net, paddle, fleet, loss)


if __name__ == "__main__":
    main()
