"""What a kernel search brings over ResNet50's convolutions: ATen alone, the rule, the best of all alternatives.

    python benchmarks/kernel_search.py --batch 8 --size 224 --threads 2

Alternatives take turns on every shape; sums are weighted by how often ResNet50 has it. The share of the machine's
peak is against a product of two big square matrices, measured again at every shape because other work comes and goes.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from argosy.engine.kernels.background_search import Alternatives
from argosy.engine.kernels.choices import measured
from argosy.engine.ops.convolution import (
    FORWARD,
    OF_INPUT,
    alternatives,
    forward_rule,
    of_input_rule,
    of_weight_rule,
    weight_alternatives,
)

Shape = tuple[int, int, int, int, int]
"""Channels, outputs, image, kernel, stride."""
SQUARE = 1024


def convolutions(size: int) -> Counter[Shape]:
    """How often ResNet50 has each shape; without the first one, which has 3 channels and no choice."""
    counts: Counter[Shape] = Counter()
    image, channels = (size + 3) // 4, 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            inside = (image + stride - 1) // stride
            counts[channels, width, image, 1, 1] += 1
            counts[width, width, image, 3, stride] += 1
            counts[width, 4 * width, inside, 1, 1] += 1
            if not block:
                counts[channels, 4 * width, image, 1, stride] += 1
            channels, image = 4 * width, inside
    return counts


@dataclass
class Sum:
    """Of one part, over all convolutions."""

    aten_ms: float = 0.0
    rule_ms: float = 0.0
    best_ms: float = 0.0
    bound_ms: float = 0.0
    wins: Counter[str] = field(default_factory=Counter)

    def add(self, times: dict[str, float], rule: str, bound_s: float, count: int) -> None:
        self.aten_ms += 1000 * count * times["aten"]
        self.rule_ms += 1000 * count * times[rule]
        self.best_ms += 1000 * count * min(times.values())
        self.bound_ms += 1000 * count * bound_s
        self.wins[min(times, key=lambda n: times[n])] += count

    def row(self, name: str) -> str:
        wins = ", ".join(f"{name} {count}" for name, count in self.wins.most_common())
        return (
            f"| {name} | {self.aten_ms:.0f} | {self.rule_ms:.0f} | {self.best_ms:.0f} | "
            f"{self.aten_ms / self.rule_ms:.2f} | {self.aten_ms / self.best_ms:.2f} | "
            f"{self.bound_ms / self.aten_ms:.0%} | {self.bound_ms / self.best_ms:.0%} | {wins} |"
        )


def parts(shape: Shape, batch: int) -> Iterator[tuple[str, Alternatives, str]]:
    """Forward and both gradients: the alternatives with their arguments, and what the rule says."""
    channels, outputs, image, kernel, stride = shape
    numbers = [stride] * 2, [kernel // 2] * 2
    x = torch.randn(batch, channels, image, image).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(outputs, channels, kernel, kernel).contiguous(memory_format=torch.channels_last)
    grad = torch.randn_like(FORWARD["aten"](x, weight, None, *numbers))
    forward, backward = (x, weight, None, *numbers), (grad, x, weight, *numbers)
    pixels = grad.shape[0] * grad.shape[2] * grad.shape[3]
    ways, back = (alternatives(kernels, pixels, x, weight, *numbers) for kernels in (FORWARD, OF_INPUT))
    yield "forward", {n: partial(f, *forward) for n, f in ways.items()}, forward_rule(*forward)
    yield "input", {n: partial(f, *backward) for n, f in back.items()}, of_input_rule(*backward)
    by_weight = weight_alternatives(x, weight, *numbers)
    yield "weight", {n: partial(f, *backward) for n, f in by_weight.items()}, of_weight_rule(*backward)


def main() -> None:
    """Print one table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--threads", type=int, default=2)
    known = p.parse_args()
    torch.set_num_threads(known.threads)
    square = torch.randn(SQUARE, SQUARE)
    sums = {"forward": Sum(), "input": Sum(), "weight": Sum(), "backward": Sum(), "all": Sum()}
    for shape, count in convolutions(known.size).items():
        channels, outputs, image, kernel, stride = shape
        pixels = known.batch * ((image + stride - 1) // stride) ** 2
        for name, runs, rule in parts(shape, known.batch):
            times = measured({**runs, "square": partial(torch.mm, square, square)}, ())
            bound_s = times.pop("square") * pixels * outputs * channels * kernel**2 / SQUARE**3
            for row in {name, "backward" if name != "forward" else name, "all"}:
                sums[row].add(times, rule, bound_s, count)
    print(
        f"ResNet50's convolutions but the first, batch {known.batch}, {known.size} px, {known.threads} threads"
    )
    print("| part | ATen ms | rule ms | best ms | rule | best | ATen of peak | best of peak | who won |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, counts in sums.items():
        print(counts.row(name))


if __name__ == "__main__":
    main()
