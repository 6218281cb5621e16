"""train_fleet_static_localsgd.py with a number of local steps that follows the loss and the learning rate.

fleetrun --nproc_per_node=2 train_fleet_static_adaptive_localsgd.py
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.adaptive_localsgd = True
    strategy.adaptive_localsgd_configs = {"init_k_steps": 1, "begin_step": 1}
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
