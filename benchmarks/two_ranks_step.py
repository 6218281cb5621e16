"""A ResNet50 training step on two ranks of this host: Argosy against DDP, both over gloo.

python benchmarks/two_ranks_step.py --pixels 224 64 --batch 8 --rounds 10

DDP gets what makes it fast: static_graph, gradient_as_bucket_view, channels_last and the fused optimizer.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import resnet50_step
import torch

STEPS = 4


def _argosy(batch: int, pixels: int, **switches: Any) -> harness.Step:
    from argosy.distributed import fleet

    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    return resnet50_step.argosy(batch, pixels, wrap=fleet.distributed_optimizer)


def argosy(batch: int, pixels: int) -> harness.Step:
    """As it is: gradients in groups, waited for at once."""
    return _argosy(batch, pixels)


def argosy_unfused(batch: int, pixels: int) -> harness.Step:
    """One all-reduce a gradient: fuse_all_reduce_ops=False."""
    return _argosy(batch, pixels, fuse_all_reduce_ops=False)


def argosy_overlapped(batch: int, pixels: int) -> harness.Step:
    """All-reduces run beside the rest of backward: sync_nccl_allreduce=False."""
    return _argosy(batch, pixels, sync_nccl_allreduce=False)


def ddp(batch: int, pixels: int) -> harness.Step:
    """torch's DistributedDataParallel."""
    torch.distributed.init_process_group("gloo")

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.parallel.DistributedDataParallel(
            model, static_graph=True, gradient_as_bucket_view=True
        )

    return resnet50_step.eager(batch, pixels, torch.channels_last, wrap)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, default=8, help="images per rank")
    p.add_argument("--pixels", type=int, nargs="+", default=[224, 64])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=10)
    args = p.parse_args()
    contenders: dict[str, Any] = {
        "argosy": argosy,
        "argosy overlapped": argosy_overlapped,
        "argosy unfused": argosy_unfused,
        "DDP": ddp,
    }
    text, found = "", {}
    for pixels in args.pixels:
        title = f"ResNet50, {args.ranks} ranks, batch {args.batch} each, {pixels} px"
        print(title, file=sys.stderr)
        steps = STEPS if pixels <= 64 else 1
        found[title] = harness.measure(
            contenders, args.rounds, steps, args.ranks, batch=args.batch, pixels=pixels
        )
        text += harness.table(title, found[title], "argosy") + "\n"
    harness.write("two-ranks-step", text, found)


if __name__ == "__main__":
    main()
