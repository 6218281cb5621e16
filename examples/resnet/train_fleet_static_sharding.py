"""train_fleet_static.py with sharded optimizer state: each rank updates a shard; a host has one copy of the weights.

fleetrun --nproc_per_node=2 train_fleet_static_sharding.py
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.sharding = True
    strategy.sharding_configs = {"segment_broadcast_MB": 32}
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
