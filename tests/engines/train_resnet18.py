"""ResNet18 at 32 px on all ranks of a job, on generated images: 10 steps, then rank 0 writes the weights."""

# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "examples/resnet")]
import resnet  # noqa: E402  (a folder of scripts)

from tests.engines import script_options  # noqa: E402

BATCH, CLASSES = 4, 10


def batches(rank: int, steps: int) -> list[script_options.Batch]:
    """The images and labels of a rank: the same in every run."""
    generator = np.random.default_rng([7, rank])
    return [
        {
            "x": generator.standard_normal((BATCH, 3, 32, 32), dtype="float32"),
            "y": generator.integers(0, CLASSES, (BATCH, 1)),
        }
        for _ in range(steps)
    ]


def main() -> None:
    args = script_options.parser(__doc__).parse_args()
    paddle.enable_static()
    paddle.seed(11)
    image = paddle.static.data("x", [BATCH, 3, 32, 32], "float32")
    label = paddle.static.data("y", [BATCH, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(resnet.ResNet(18).net(image, CLASSES), label)
    fleet.init(is_collective=True)
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01, 0.9)).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    for batch in script_options.steps(args, batches(fleet.worker_index(), args.steps), exe):
        (value,) = exe.run(feed=batch, fetch_list=[loss])
        print(f"loss: {value.item():.6f}", flush=True)
    if fleet.is_first_worker():
        script_options.save(args.weights, script_options.parameters())


main()
