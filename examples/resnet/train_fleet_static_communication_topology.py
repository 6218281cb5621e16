"""train_fleet_static.py with sums in two stages: inside a block of ranks, then between the blocks.

fleetrun --ips=host-a,host-b --nproc_per_node=4 train_fleet_static_communication_topology.py     blocks: the hosts
fleetrun --gpus=0,1,2,3 train_fleet_static_communication_topology.py --inter_nranks 2            blocks of two
"""

# SPDX-License-Identifier: Apache-2.0
import argparse

import train_fleet_static

from argosy.distributed import fleet


def strategy(args: argparse.Namespace) -> fleet.DistributedStrategy:
    fleet_strategy = fleet.DistributedStrategy()
    fleet_strategy.use_hierarchical_allreduce = True
    fleet_strategy.hierarchical_allreduce_inter_nranks = args.inter_nranks
    fleet_strategy.hierarchical_allreduce_algorithm = args.algorithm
    return fleet_strategy


def parse() -> argparse.Namespace:
    p = train_fleet_static.parser(__doc__)
    p.add_argument(
        "--inter_nranks", type=int, default=1, help="ranks in the inner all-reduce (1: the ranks of a host)"
    )
    p.add_argument(
        "--algorithm",
        choices=("reduce_scatter", "leaders"),
        default="reduce_scatter",
        help="leaders: as Paddle does it",
    )
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    train_fleet_static.train_resnet(args, strategy(args))
