"""train_fleet_static.py with fused nodes: computation, updates and communication, as the seed of op fusion has it.

fleetrun --gpus=0,1 train_fleet_static_op_fusion.py
"""

# SPDX-License-Identifier: Apache-2.0
import train_fleet_static

import argosy as paddle
from argosy.distributed import fleet

if __name__ == "__main__":
    # computation
    build_strategy = paddle.static.BuildStrategy()
    build_strategy.fuse_elewise_add_act_ops = True
    build_strategy.fuse_bn_act_ops = True
    build_strategy.fuse_relu_depthwise_conv = True
    build_strategy.fuse_broadcast_ops = True
    build_strategy.fuse_all_optimizer_ops = True

    strategy = fleet.DistributedStrategy()
    strategy.build_strategy = build_strategy

    # communication
    strategy.fuse_grad_size_in_MB = 16
    strategy._fuse_grad_size_in_TFLOPS = 50
    strategy.fuse_all_reduce_ops = True
    train_fleet_static.train_resnet(train_fleet_static.parser(__doc__).parse_args(), strategy)
