"""train_fleet_static.py with updates every 4 steps, from the mean gradient of the 4 batches.

fleetrun --nproc_per_node=2 train_fleet_static_gradient_merge.py
fleetrun --nproc_per_node=2 train_fleet_static_gradient_merge.py --k_steps 8
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    parser = train_fleet_static.parser(__doc__)
    parser.add_argument("--k_steps", type=int, default=4, help="update every so many steps")
    args = parser.parse_args()
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": args.k_steps, "avg": True}
    train_fleet_static.train_resnet(args, strategy)
