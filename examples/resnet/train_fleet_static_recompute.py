"""train_fleet_static.py with activations that are recomputed in backward, so that a larger batch fits.

fleetrun --nproc_per_node=2 train_fleet_static_recompute.py                      stores the sums at the ends of blocks
fleetrun --nproc_per_node=2 train_fleet_static_recompute.py --auto               lets Argosy choose what to store
fleetrun --nproc_per_node=2 train_fleet_static_recompute.py --auto --memory_budget_MB 2000
"""

# SPDX-License-Identifier: Apache-2.0
import argparse

import resnet
import train_fleet_static

from argosy.distributed import fleet


def strategy(args: argparse.Namespace) -> fleet.DistributedStrategy:
    model = resnet.ResNet(args.layers)
    blocks = [
        model.block_name(stage, i)
        for stage, count in enumerate(resnet.BLOCKS[args.layers])
        for i in range(count)
    ]
    fleet_strategy = fleet.DistributedStrategy()
    fleet_strategy.recompute = True
    fleet_strategy.recompute_configs = {
        "checkpoints": "auto" if args.auto else [f"{block}.add.output.5.tmp_0" for block in blocks],
        "memory_budget_MB": args.memory_budget_MB,
    }
    return fleet_strategy


def parse() -> argparse.Namespace:
    p = train_fleet_static.parser(__doc__)
    p.add_argument("--auto", action="store_true", help="let Argosy choose the checkpoints")
    p.add_argument("--memory_budget_MB", type=float, default=0, help="the peak to aim at, with --auto")
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    train_fleet_static.train_resnet(args, strategy(args))
