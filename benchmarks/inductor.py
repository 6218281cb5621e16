"""A ResNet50 training step in one process: Argosy as it is, Argosy with Inductor, torch.compile in channels_last.

python benchmarks/inductor.py --batch 8 --rounds 12

The first start compiles for minutes; a second one finds everything in the cache.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
from resnet50_step import argosy, eager


def argosy_inductor(batch: int, pixels: int) -> harness.Step:
    """The same program with BuildStrategy.compiler = "inductor"."""
    import argosy as paddle

    step = argosy(batch, pixels)
    build = paddle.static.BuildStrategy()
    build.compiler = "inductor"
    paddle.static.CompiledProgram(paddle.static.default_main_program(), build)
    return step


def torch_compile(batch: int, pixels: int) -> harness.Step:
    """torch.compile of the model in channels_last, with the fused optimizer."""
    return eager(batch, pixels, torch.channels_last, torch.compile)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[8], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=12)
    args = p.parse_args()
    contenders: dict[str, Any] = {
        "argosy with inductor": argosy_inductor,
        "argosy": argosy,
        "torch.compile channels_last": torch_compile,
    }
    text, found = "", {}
    for batch in args.batch:
        title = f"ResNet50, batch {batch}, {args.pixels} px"
        print(title, file=sys.stderr)
        found[title] = harness.measure(contenders, args.rounds, batch=batch, pixels=args.pixels)
        text += harness.table(title, found[title], "argosy with inductor") + "\n"
    harness.write("inductor", text, found)


if __name__ == "__main__":
    main()
