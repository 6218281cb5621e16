"""train_fleet_static.py in mixed precision: convolutions and matrix products in bfloat16.

fleetrun --nproc_per_node=2 train_fleet_static_amp.py
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    strategy.amp_configs = {"custom_black_list": [], "custom_white_list": []}
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
