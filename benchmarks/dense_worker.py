"""One process of a job that trains dense parameters: with parameter servers, synchronously, or collectively.

    python benchmarks/dense_worker.py mlp
    python benchmarks/dense_worker.py resnet18 --collective

Role and addresses come from the environment; benchmarks/ps_modes.py starts it, benchmarks/orders.py says how a
worker gets its commands.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "resnet"))

import numpy as np
import orders
import resnet

import argosy as paddle
from argosy.distributed import fleet

CLASSES = 10
HIDDEN = (1024, 1024, 1024, 1024)
SHAPES = {"mlp": (784,), "resnet18": (3, 32, 32)}
BATCH = {"mlp": 64, "resnet18": 8}


def logits(model: str, image: Any) -> Any:
    """The network: an MLP of 4 M parameters, or a ResNet18 of 11 M."""
    if model == "resnet18":
        return resnet.ResNet(18).net(image, CLASSES)
    for size in HIDDEN:
        image = paddle.static.nn.fc(image, size, activation="relu")
    return paddle.static.nn.fc(image, CLASSES)


def parameter_bytes(model: str) -> int:
    """What the parameters take in memory, as 32-bit floats."""
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()), paddle.utils.unique_name.guard():
        logits(model, paddle.static.data("x", [None, *SHAPES[model]], "float32"))
    return 4 * sum(math.prod(p.shape) for p in main.all_parameters() if p.trainable)


def build(model: str, is_collective: bool) -> Any:
    """The program, trained by Momentum; gives its loss."""
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    fleet.init(is_collective=is_collective, strategy=strategy)
    image = paddle.static.data("x", [None, *SHAPES[model]], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(logits(model, image), label)
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01, 0.9), strategy).minimize(loss)
    return loss


def work(model: str, is_collective: bool, loss: Any) -> None:
    """Train one batch again and again, on order."""
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    if not is_collective:
        fleet.init_worker()
    program = paddle.static.default_main_program()
    rng = np.random.default_rng(fleet.worker_index())
    x = rng.standard_normal((BATCH[model], *SHAPES[model]), np.float32)
    batch = {"x": x, "y": rng.integers(0, CLASSES, (BATCH[model], 1))}

    def step(batch: orders.Batch) -> float:
        (value,) = exe.run(program, feed=batch, fetch_list=[loss])
        return float(value.item())

    orders.follow(step, itertools.repeat(batch))
    if not is_collective:
        fleet.stop_worker()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=sorted(SHAPES))
    p.add_argument("--collective", action="store_true")
    args = p.parse_args()
    paddle.enable_static()
    loss = build(args.model, args.collective)
    if not args.collective and fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        work(args.model, args.collective, loss)


if __name__ == "__main__":
    main()
