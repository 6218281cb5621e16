"""Deep Gradient Compression as in the paper, in plain torch: what loss has the method itself?

python benchmarks/dgc_reference.py --layers 50 --pixels 64 --schedule none 100,100 0,300     the loss of each schedule

Algorithm 4 of Lin et al. 2018 (momentum correction, momentum factor masking, local clipping with --clip) for two ranks
in one process. Of Argosy's op only `largest` is used, which finds the k largest elements. Initial values, images and
settings are those of `benchmarks/dgc.py loss`, so that both print the same losses but for rounding. A schedule is
`begin,rampup`; `none` is dense; --no-mask keeps u.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "resnet"))

import numpy as np
import torch
import torch.nn.functional as F
import torch_resnet
from torch import Tensor

from argosy.engine.ops.dgc import largest

WARM_UP = (0.75, 0.9375, 0.984375, 0.996, 0.999)
CLASSES, RANKS, MU, DECAY, LAST = 102, 2, 0.9, 1e-4, 50
LEAST = 16384
"""Smaller parameters are not compressed."""


def initial_values(layers: int, pixels: int, seed: int) -> dict[str, Tensor]:
    """What Argosy's startup program draws, by TorchResNet's names."""
    import resnet

    import argosy as paddle

    resnet.BLOCKS.update(torch_resnet.BLOCKS)
    image = paddle.static.data("x", [None, 3, pixels, pixels], "float32")
    resnet.ResNet(layers).net(image, CLASSES)
    paddle.seed(seed)
    paddle.static.Executor().run(paddle.static.default_startup_program())
    scope, names = paddle.static.global_scope(), torch_resnet.paddle_names(layers)
    values = {}
    for key, value in torch_resnet.TorchResNet(layers, CLASSES).state_dict().items():
        if key in names:
            variable = scope.find_var(names[key])
            assert variable is not None, key
            array = torch.from_numpy(np.array(variable.get_tensor()))
            values[key] = array.t() if key == "fc.weight" else array
            assert values[key].shape == value.shape, key
    return values


def images(pixels: int, batch: int, seed: int, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of a rank, as benchmarks/dgc.py feeds them."""
    import argosy as paddle

    reader = paddle.dataset.flowers.train(use_xmap=False, image_size=pixels, share=(rank, RANKS))
    kept = list(reader())
    while True:
        shuffled = paddle.reader.shuffle(lambda: iter(kept), buf_size=1024, seed=seed)
        for samples in paddle.batch(shuffled, batch, drop_last=True)():
            x = np.stack([s[0] for s in samples]).reshape(-1, 3, pixels, pixels)
            yield torch.from_numpy(x), torch.tensor([s[1] for s in samples])


class Trained:
    """A parameter, its gradient on each rank, and the state of each rank."""

    def __init__(self, value: torch.nn.Parameter, args: argparse.Namespace) -> None:
        self.value, self.args = value, args
        self.u = [torch.zeros_like(value) for _ in range(RANKS)]
        self.v = [torch.zeros_like(value) for _ in range(RANKS)]

    def update(self, grads: list[Tensor], density: float) -> None:
        """One step; a density of 1 is Momentum on the mean, whose velocity is the sum of the ranks' u."""
        if density == 1 or self.value.numel() < LEAST:
            for u, g in zip(self.u, grads, strict=True):
                u.mul_(MU).add_(g / RANKS).add_(self.value, alpha=DECAY / RANKS)
            total = sum(self.u)
        else:
            total = sum(self._sent(i, g / RANKS, density) for i, g in enumerate(grads))
        self.value.sub_(total * self.args.lr)

    def _sent(self, rank: int, grad: Tensor, density: float) -> Tensor:
        u, v = self.u[rank], self.v[rank]
        if self.args.clip:
            limit = self.args.clip / math.sqrt(RANKS)
            grad = grad * (limit / max(limit, grad.norm().item()))
        u.mul_(MU).add_(grad).add_(self.value, alpha=DECAY / RANKS)
        v.add_(u)
        count = max(1, round(v.numel() * density))
        chosen = largest(v.view(-1), count)
        sent = torch.zeros_like(v)
        sent.view(-1)[chosen] = v.view(-1)[chosen]
        v.view(-1)[chosen] = 0
        if not self.args.no_mask:
            u.view(-1)[chosen] = 0
        return sent


def density_at(step: int, schedule: str) -> float:
    if schedule == "none":
        return 1.0
    begin, rampup = map(int, schedule.split(","))
    if step < begin:
        return 1.0
    return 1 - WARM_UP[min((step - begin) * len(WARM_UP) // rampup, len(WARM_UP) - 1)]


def losses(args: argparse.Namespace, schedule: str, values: dict[str, Tensor]) -> list[float]:
    """The mean loss of both ranks at every step."""
    model: Any = torch_resnet.TorchResNet(args.layers, CLASSES)
    model.load_state_dict(values, strict=False)
    parameters = [Trained(p, args) for p in model.parameters()]
    readers = [images(args.pixels, args.batch, args.seed, rank) for rank in range(RANKS)]
    result = []
    for step in range(args.steps):
        grads, total = [], 0.0
        for reader in readers:
            x, y = next(reader)
            loss = F.cross_entropy(model(x), y)
            grads.append(torch.autograd.grad(loss, list(model.parameters())))
            total += loss.item() / RANKS
        with torch.no_grad():
            for parameter, each in zip(parameters, zip(*grads, strict=True), strict=True):
                parameter.update(list(each), density_at(step, schedule))
        result.append(total)
    return result


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--schedule", nargs="+", default=["none", "0,300", "100,100"], help="`begin,rampup`, or none"
    )
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--layers", type=int, default=10)
    p.add_argument("--pixels", type=int, default=32)
    p.add_argument("--batch", type=int, default=8, help="images a rank")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--clip", type=float, default=0.0, help="norm of a parameter's gradient; 0: none")
    p.add_argument("--no-mask", action="store_true", help="keep the momentum of what was sent")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch_resnet.BLOCKS[10] = [1, 1, 1, 1]
    values = initial_values(args.layers, args.pixels, args.seed)
    for schedule in args.schedule:
        each = losses(args, schedule, values)
        parts = ", ".join(f"{np.mean(each[i : i + LAST]):.3f}" for i in range(0, len(each), LAST))
        print(
            f"{schedule}: loss {np.mean(each[-LAST:]):.4f} over the last {LAST} steps; by {LAST} steps: {parts}",
            flush=True,
        )


if __name__ == "__main__":
    main()
