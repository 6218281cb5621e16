"""train_fleet_static.py for large batches: LARS, Momentum with a learning rate for each layer.

fleetrun --nproc_per_node=2 train_fleet_static_lars.py --batch_size 256 --lr 2
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.lars = True
    strategy.lars_configs = {
        "lars_coeff": 0.001,
        "lars_weight_decay": 0.0005,
        "exclude_from_weight_decay": ["bn", ".b_0"],  # parts of names: batch norms and biases
    }
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
