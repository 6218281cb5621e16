"""train_fleet_static.py with parameters that the ranks average every 4 steps, instead of gradients in every step.

fleetrun --nproc_per_node=2 train_fleet_static_localsgd.py
fleetrun --ips=host-a,host-b --nproc_per_node=2 train_fleet_static_localsgd.py        where it pays: between hosts
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    parser = train_fleet_static.parser(__doc__)
    parser.add_argument("--k_steps", type=int, default=4, help="average every so many steps")
    parser.add_argument("--begin_step", type=int, default=1, help="average in every step up to this one")
    args = parser.parse_args()
    strategy = fleet.DistributedStrategy()
    strategy.localsgd = True
    strategy.localsgd_configs = {"k_steps": args.k_steps, "begin_step": args.begin_step}
    train_fleet_static.train_resnet(args, strategy)
