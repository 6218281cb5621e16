"""A ResNet50 training step on several ranks: Argosy against DDP, taking turns.

python benchmarks/distributed_step.py one-host          2 ranks, batch 8 at 224 px and batch 2 at 64 px
python benchmarks/distributed_step.py two-hosts         2 hosts x 2 ranks in the lab, 1 Gbit/s, batch 8 at 64 px

DDP gets what makes it fast: static_graph, gradient_as_bucket_view, channels_last, the fused optimizer, and the
best of three bucket sizes.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import resnet50_step
import torch
from lab.network import Lab

BUCKETS_MB = (1, 25, 100)
Contenders = dict[str, Callable[..., harness.Step]]


def argosy(batch: int, pixels: int, **switches: Any) -> harness.Step:
    """The program of examples/resnet with a strategy of these switches."""
    from argosy.distributed import fleet

    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    return resnet50_step.argosy(batch, pixels, wrap=fleet.distributed_optimizer)


def ddp(batch: int, pixels: int, bucket_mb: float) -> harness.Step:
    """torch's DistributedDataParallel."""
    torch.distributed.init_process_group("gloo")

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.parallel.DistributedDataParallel(
            model, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mb
        )

    return resnet50_step.eager(batch, pixels, torch.channels_last, wrap)


OVERLAP = {"sync_nccl_allreduce": False}
TWO_STAGES = {"use_hierarchical_allreduce": True}
DDP: Contenders = {f"DDP, buckets of {mb} MB": functools.partial(ddp, bucket_mb=mb) for mb in BUCKETS_MB}
ONE_HOST: Contenders = {
    "argosy": argosy,
    "argosy, overlap": functools.partial(argosy, **OVERLAP),
    "argosy, unfused": functools.partial(argosy, fuse_all_reduce_ops=False),
    **DDP,
}
TWO_HOSTS: Contenders = {
    "argosy, hierarchical, overlap": functools.partial(argosy, **TWO_STAGES, **OVERLAP),
    "argosy, hierarchical": functools.partial(argosy, **TWO_STAGES),
    "argosy, flat, overlap": functools.partial(argosy, **OVERLAP),
    **DDP,
}


def measure(
    title: str, contenders: Contenders, rounds: int, steps: int, ranks: int, lab: Lab | None, **case: int
) -> tuple[str, dict[str, harness.Measured]]:
    """A table with the first contender against the others, and a line about the best DDP."""
    print(title, file=sys.stderr)
    results = harness.measure(contenders, rounds, steps, ranks, lab, **case)
    base = next(iter(contenders))
    best = min(DDP, key=lambda name: results[name].median)
    ratios = [
        f"{name}: {results[best].best / m.best:.2f} / {results[best].median / m.median:.2f}"
        for name, m in results.items()
        if name not in DDP
    ]
    line = f"Against the best DDP ({best.removeprefix('DDP, ')}), best / median: {'; '.join(ratios)}.\n\n"
    return harness.table(title, results, base) + "\n" + line, results


def one_host(rounds: int) -> tuple[str, dict[str, dict[str, harness.Measured]]]:
    text, results = "", {}
    for batch, pixels in ((8, 224), (2, 64)):
        title = f"ResNet50, 2 ranks on one host, batch {batch} each, {pixels} px"
        steps = 6 if pixels <= 64 else 1
        made, results[title] = measure(title, ONE_HOST, rounds, steps, 2, None, batch=batch, pixels=pixels)
        text += made
    return text, results


def two_hosts(rounds: int, rate: str) -> tuple[str, dict[str, dict[str, harness.Measured]]]:
    title = f"ResNet50, 2 hosts x 2 ranks, {rate}, batch 8 each, 64 px"
    with Lab(2, rate) as lab:
        text, results = measure(title, TWO_HOSTS, rounds, 2, 4, lab, batch=8, pixels=64)
    return text, {title: results}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("where", choices=("one-host", "two-hosts"))
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--rate", default="1gbit", help="of the lab's links")
    args = p.parse_args()
    text, results = one_host(args.rounds) if args.where == "one-host" else two_hosts(args.rounds, args.rate)
    harness.write(f"distributed-step-{args.where}", text, results)


if __name__ == "__main__":
    main()
