"""train_fleet_static.py on a slow network: Deep Gradient Compression.

fleetrun --nproc_per_node=2 train_fleet_static_dgc.py
fleetrun --ips=10.0.0.1,10.0.0.2 train_fleet_static_dgc.py --rampup_begin_step 2504 --rampup_step 3756
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    p = train_fleet_static.parser(__doc__)
    p.add_argument("--rampup_begin_step", type=int, default=100, help="steps with whole gradients")
    p.add_argument("--rampup_step", type=int, default=400, help="steps until the last sparsity is reached")
    args = p.parse_args()
    strategy = fleet.DistributedStrategy()
    strategy.dgc = True
    strategy.dgc_configs = {
        "rampup_begin_step": args.rampup_begin_step,
        "rampup_step": args.rampup_step,
        "sparsity": [0.75, 0.9375, 0.984375, 0.996, 0.999],
    }
    train_fleet_static.train_resnet(args, strategy)
