"""train_fleet_static.py for large batches: Lamb, Adam with a learning rate for each layer.

fleetrun --nproc_per_node=2 train_fleet_static_lamb.py --batch_size 256 --lr 0.01
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

import argosy as paddle
from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.lamb = True
    strategy.lamb_configs = {
        "lamb_weight_decay": 0.01,
        "exclude_from_weight_decay": ["_scale", "_offset", ".b_0"],  # ends of names: batch norms and biases
    }
    args = train_fleet_static.parser(__doc__).parse_args()
    train_fleet_static.train_resnet(args, strategy, paddle.optimizer.Adam(args.lr, beta1=0.9, beta2=0.999))
