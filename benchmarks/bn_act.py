"""Batch norm and relu, forward and backward, over the shapes of ResNet50: one kernel each way against ATen's pairs.

python benchmarks/bn_act.py --batch 8 --rounds 20

A step runs each of the 33 norms of ResNet50 at 224 px that a relu follows.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
from torch import Tensor

aten = torch.ops.aten
SHAPES = (
    (64, 112, 1),
    (64, 56, 6),
    (128, 56, 1),
    (128, 28, 7),
    (256, 28, 1),
    (256, 14, 11),
    (512, 14, 1),
    (512, 7, 5),
)
"""Channels, pixels a side, how often."""
EPS = 1e-5


def fused(x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor) -> None:
    from argosy.engine.ops.bn_act import SPECS

    forward, _, backward, _ = (spec.kernel for spec in SPECS)
    _, mean, invstd = forward(x, weight, bias, None, EPS, "relu")
    backward(dy, None, x, None, weight, bias, mean, invstd, "relu", [True] * 3)


def pairs(x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor) -> None:
    y, mean, invstd = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, EPS)
    y = aten.relu_(y)
    g = aten.threshold_backward(dy, y, 0)
    aten.native_batch_norm_backward(g, x, weight, None, None, mean, invstd, True, EPS, [True] * 3)


def over_all(run: Callable[..., None], batch: int, order: torch.memory_format) -> Callable[[], None]:
    from argosy.engine.runtime.malloc import retain_freed_memory

    retain_freed_memory()  # for both: else the kernel's work on fresh pages is most of the time
    torch.manual_seed(0)
    cases = []
    for channels, side, count in SHAPES:
        x, dy = (torch.randn(batch, channels, side, side).contiguous(memory_format=order) for _ in range(2))
        cases += [(x, dy, torch.rand(channels) + 0.5, torch.randn(channels))] * count

    def step() -> None:
        for case in cases:
            run(*case)

    return step


def fused_last(batch: int) -> harness.Step:
    return over_all(fused, batch, torch.channels_last)


def pairs_last(batch: int) -> harness.Step:
    return over_all(pairs, batch, torch.channels_last)


def fused_first(batch: int) -> harness.Step:
    return over_all(fused, batch, torch.contiguous_format)


def pairs_first(batch: int) -> harness.Step:
    return over_all(pairs, batch, torch.contiguous_format)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--rounds", type=int, default=20)
    args = p.parse_args()
    text, results = "", {}
    for batch in args.batch:
        for order, base, contenders in (
            ("channels_last", "argosy", {"argosy": fused_last, "ATen's pairs": pairs_last}),
            ("contiguous", "argosy", {"argosy": fused_first, "ATen's pairs": pairs_first}),
        ):
            title = f"batch norm and relu, forward and backward, batch {batch}, {order}"
            print(title, file=sys.stderr)
            table: Any = contenders
            results[title] = harness.measure(table, args.rounds, steps=2, batch=batch)
            text += harness.table(title, results[title], base) + "\n"
    harness.write("bn-act", text, results)


if __name__ == "__main__":
    main()
