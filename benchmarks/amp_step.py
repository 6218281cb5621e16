"""A ResNet50 training step in bfloat16 mixed precision: Argosy against torch.autocast, eager and compiled.

python benchmarks/amp_step.py --batch 8 --rounds 12 --compiled
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
import torch.nn.functional as F
from resnet50_step import CLASSES, argosy, batch_of
from torch_resnet import TorchResNet

FUSIONS = ("fuse_bn_act_ops", "fuse_bn_add_act_ops", "fuse_elewise_add_act_ops", "fuse_all_optimizer_ops")


def fused(optimizer: Any, amp: bool) -> Any:
    """The optimizer under a strategy with all fusions, in float32 or in mixed precision."""
    import argosy as paddle
    from argosy.distributed import fleet

    strategy = fleet.DistributedStrategy()
    build = paddle.static.BuildStrategy()
    for name in FUSIONS:
        setattr(build, name, True)
    strategy.build_strategy, strategy.amp = build, amp
    fleet.init(is_collective=True, strategy=strategy)
    return fleet.distributed_optimizer(optimizer)


def argosy_float32(batch: int, pixels: int) -> harness.Step:
    """Argosy in float32 with all fusions."""
    return argosy(batch, pixels, lambda optimizer: fused(optimizer, amp=False))


def argosy_amp(batch: int, pixels: int) -> harness.Step:
    """Argosy in bfloat16 with all fusions."""
    return argosy(batch, pixels, lambda optimizer: fused(optimizer, amp=True))


def autocast(batch: int, pixels: int, compiles: bool = False) -> harness.Step:
    """torch.autocast in bfloat16, channels_last, with the fused optimizer."""
    x, y = batch_of(batch, pixels)
    x = x.contiguous(memory_format=torch.channels_last)
    model: Any = TorchResNet(50, CLASSES)
    model = model.to(memory_format=torch.channels_last)
    called: Any = torch.compile(model) if compiles else model
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(called(x), y.squeeze(1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def autocast_compiled(batch: int, pixels: int) -> harness.Step:
    """The same through torch.compile."""
    return autocast(batch, pixels, compiles=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument(
        "--compiled", action="store_true", help="measure torch.compile, too, which takes minutes to compile"
    )
    args = p.parse_args()
    contenders: dict[str, Any] = {
        "argosy amp": argosy_amp,
        "autocast": autocast,
        "argosy float32": argosy_float32,
    }
    if args.compiled:
        contenders["autocast compiled"] = autocast_compiled
    text, results = "", {}
    for batch in args.batch:
        title = f"ResNet50 in bfloat16, batch {batch}, {args.pixels} px"
        print(title, file=sys.stderr)
        results[title] = harness.measure(contenders, args.rounds, batch=batch, pixels=args.pixels)
        text += harness.table(title, results[title], "argosy amp") + "\n"
    harness.write("amp-step", text, results)


if __name__ == "__main__":
    main()
