"""Deep Gradient Compression between two hosts: the rate of steps, and the loss, against dense gradients.

python benchmarks/dgc.py speed --rate 100mbit              ResNet50 at 64 px, 2 hosts x 1 rank in the lab (needs root)
python benchmarks/dgc.py loss --steps 300                  a small ResNet, 2 ranks on this host
python benchmarks/dgc.py loss --steps 300 --layers 50 --pixels 64 --batch 16

`loss` trains on the drawn flowers with the same batches in both runs, and compares the mean loss of the last 50 steps.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import distributed_step
import harness
import numpy as np
from lab.network import Lab

FINAL = [0.999]
WARM_UP = [0.75, 0.9375, 0.984375, 0.996, 0.999]
SMALL = 10
"""Layers of a ResNet with one block of every shape."""
LAST = 50
SETTINGS = ("steps", "layers", "pixels", "batch", "lr", "begin", "rampup", "seed")


def speed(rate: str, rounds: int, batch: int, pixels: int) -> None:
    """The table of step times, written to results."""
    compressed: dict[str, Any] = {"dgc": True, "dgc_configs": {"sparsity": FINAL}}
    contenders: distributed_step.Contenders = {
        "dgc, density 0.1 %": functools.partial(distributed_step.argosy, **compressed),
        "dense": distributed_step.argosy,
        "dense, fp16_allreduce": functools.partial(distributed_step.argosy, fp16_allreduce=True),
        "DDP, buckets of 25 MB": functools.partial(distributed_step.ddp, bucket_mb=25),
    }
    title = f"ResNet50, 2 hosts x 1 rank, {rate}, batch {batch} each, {pixels} px"
    with Lab(2, rate) as lab:
        results = harness.measure(contenders, rounds, 1, 2, lab, batch=batch, pixels=pixels)
    text = harness.table(title, results, "dgc, density 0.1 %")
    harness.write("dgc", text, {title: results})


# --- the loss -----------------------------------------------------------------------------------------


def compare(args: argparse.Namespace) -> None:
    """Train with dense and with compressed gradients, each in a job of two ranks."""
    means = {}
    for kind in ("dense", "dgc"):
        launch = [sys.executable, "-m", "argosy.distributed.launch", "--nproc_per_node=2", __file__, "train"]
        options = [f"--{name}={getattr(args, name)}" for name in SETTINGS]
        run = subprocess.run(
            [*launch, *options, f"--kind={kind}"], check=True, capture_output=True, text=True
        )
        losses = next(json.loads(line[7:]) for line in run.stdout.splitlines() if line.startswith("losses "))
        means[kind] = float(np.mean(losses[-LAST:]))
        parts = [losses[first : first + LAST] for first in range(0, len(losses), LAST)]
        shown = ", ".join(f"{np.mean(part):.3f}" for part in parts)
        print(
            f"{kind}: loss {means[kind]:.4f} over the last {LAST} steps; by {LAST} steps: {shown}", flush=True
        )
    print(f"dgc / dense: {means['dgc'] / means['dense']:.3f}")


def train(args: argparse.Namespace) -> None:
    """On a rank: print the loss of every step, the mean of both ranks."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "resnet"))
    import resnet

    import argosy as paddle
    from argosy.distributed import fleet

    resnet.BLOCKS[SMALL] = [1, 1, 1, 1]
    strategy = fleet.DistributedStrategy()
    if args.kind == "dgc":
        strategy.dgc = True
        schedule = {"rampup_begin_step": args.begin, "rampup_step": args.rampup, "sparsity": WARM_UP}
        strategy.dgc_configs = schedule
    fleet.init(is_collective=True, strategy=strategy)
    image = paddle.static.data("x", [None, 3, args.pixels, args.pixels], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(resnet.ResNet(args.layers).net(image, 102), label)
    optimizer = paddle.optimizer.Momentum(args.lr, 0.9, weight_decay=1e-4)
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    exe = paddle.static.Executor()
    paddle.seed(args.seed)
    exe.run(paddle.static.default_startup_program())
    losses = []
    for x, y in itertools.islice(batches(paddle, fleet, args), args.steps):
        (value,) = exe.run(feed={"x": x, "y": y}, fetch_list=[loss])
        losses.append(float(fleet.util.all_reduce(np.asarray(value)).mean()) / fleet.worker_num())
    if fleet.is_first_worker():
        print("losses", json.dumps(losses), flush=True)


def batches(paddle: Any, fleet: Any, args: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """This rank's images, again and again."""
    share = (fleet.worker_index(), fleet.worker_num())
    reader = paddle.dataset.flowers.train(use_xmap=False, image_size=args.pixels, share=share)
    shuffled = paddle.batch(
        paddle.reader.shuffle(reader, buf_size=1024, seed=args.seed), args.batch, drop_last=True
    )
    while True:
        for samples in shuffled():
            images = np.stack([s[0] for s in samples]).reshape(-1, 3, args.pixels, args.pixels)
            yield images, np.array([[s[1]] for s in samples], "int64")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("speed", "loss", "train"))
    p.add_argument("--rate", default="100mbit", help="of the lab's links")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--layers", type=int, default=SMALL)
    p.add_argument("--pixels", type=int, default=32)
    p.add_argument("--batch", type=int, default=8, help="images a rank")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--begin", type=int, default=100, help="steps with dense gradients")
    p.add_argument("--rampup", type=int, default=100, help="steps of warm-up")
    p.add_argument("--seed", type=int, default=0, help="of the initial values and the order of the images")
    p.add_argument("--kind", choices=("dense", "dgc"), default="dgc", help="of `train`, which `loss` starts")
    args = p.parse_args()
    if args.what == "speed":
        speed(args.rate, args.rounds, args.batch, max(args.pixels, 64))
    else:
        {"loss": compare, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
