"""MobileNetV1 on many processes, with the relus fused into the depthwise convolutions.

fleetrun --gpus=0,1 train_mobilenet.py                                      224 px, batch 32 each
fleetrun --nproc_per_node=2 train_mobilenet.py --scale 0.25 --image_size 64 --epochs 2
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "resnet"))

import common
import mobilenet
import train_fleet_static

import argosy as paddle
from argosy.distributed import fleet


def strategy(args: argparse.Namespace) -> fleet.DistributedStrategy:
    build_strategy = paddle.static.BuildStrategy()
    build_strategy.fuse_relu_depthwise_conv = args.fuse
    build_strategy.fuse_bn_act_ops = args.fuse
    build_strategy.fuse_all_optimizer_ops = args.fuse
    fleet_strategy = fleet.DistributedStrategy()
    fleet_strategy.build_strategy = build_strategy
    return fleet_strategy


def parse() -> argparse.Namespace:
    p = train_fleet_static.for_fleet(common.parser(__doc__))
    p.add_argument("--scale", type=float, default=1.0, help="multiplies all numbers of filters")
    p.add_argument("--no_fuse", dest="fuse", action="store_false", help="without compute fusions")
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    train_fleet_static.train(mobilenet.MobileNetV1(args.scale).net, args, strategy(args))
