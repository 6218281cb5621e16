"""train_fleet_static.py with all-reduces that overlap with the computation, on two communicators.

fleetrun --gpus=0,1 train_fleet_static_overlap.py
fleetrun --ips=host-a,host-b --nproc_per_node=2 train_fleet_static_overlap.py        where it pays: between hosts
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

from argosy.distributed import fleet

if __name__ == "__main__":
    strategy = fleet.DistributedStrategy()
    strategy.nccl_comm_num = 2
    strategy.sync_nccl_allreduce = False
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
