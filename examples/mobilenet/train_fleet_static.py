"""MobileNetV1 on many processes, with the relus fused into the depthwise convolutions.

fleetrun --gpus=0,1 train_fleet_static.py                                   224 px, batch 32 each
fleetrun --nproc_per_node=2 train_fleet_static.py --scale 0.25 --image_size 64 --epochs 2
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "resnet"))

import common
import mobilenet  # type: ignore[import-not-found]  # mypy_path can have one train_fleet_static alone

import argosy as paddle
from argosy.distributed import fleet


def train_mobilenet(args: argparse.Namespace) -> None:
    paddle.enable_static()
    paddle.vision.set_image_backend("cv2")
    shape = [None, 3, args.image_size, args.image_size]
    image = paddle.static.data(name="x", shape=shape, dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    out = mobilenet.MobileNetV1(scale=args.scale).net(input=image, class_dim=args.class_dim)
    avg_cost = paddle.nn.functional.cross_entropy(input=out, label=label)
    acc_top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    test_program = paddle.static.default_main_program().clone(for_test=True)

    build_strategy = paddle.static.BuildStrategy()
    build_strategy.fuse_relu_depthwise_conv = args.fuse
    build_strategy.fuse_bn_act_ops = args.fuse
    build_strategy.fuse_all_optimizer_ops = args.fuse
    strategy = fleet.DistributedStrategy()
    strategy.build_strategy = build_strategy
    fleet.init(is_collective=True, strategy=strategy)

    place = common.get_place()
    share = (fleet.worker_index(), fleet.worker_num())
    train_loader = common.get_train_loader([image, label], place, args, share)
    optimizer = fleet.distributed_optimizer(common.optimizer_setting(args))
    optimizer.minimize(avg_cost)

    exe = paddle.static.Executor(place)
    exe.run(paddle.static.default_startup_program())
    main = paddle.static.default_main_program()
    batches = (
        (epoch, number, data) for epoch in range(args.epochs) for number, data in enumerate(train_loader())
    )
    step, began = 0, time.perf_counter()
    for epoch, number, data in batches:
        loss, acc1 = exe.run(main, feed=data, fetch_list=[avg_cost.name, acc_top1.name])
        if number % args.print_every == 0:
            print(
                f"[Epoch {epoch}, batch {number}] loss: {float(loss):.5f}, acc1: {float(acc1):.5f}",
                flush=True,
            )
        step += 1
        if step == args.max_steps:
            break
    seconds = time.perf_counter() - began
    if fleet.is_first_worker():
        images = step * args.batch_size * fleet.worker_num()
        print(
            f"{step} steps on {fleet.worker_num()} ranks in {seconds:.1f} s, {images / seconds:.1f} images/s"
        )
        print(f"test acc1: {common.test_accuracy(exe, test_program, acc_top1, args):.5f}")
        if args.save:
            paddle.static.save_inference_model(args.save, [image], [out], exe)
            print(f"inference model written to {args.save}.pdmodel")


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scale", type=float, default=1.0, help="multiplies all numbers of filters")
    p.add_argument("--image_size", type=int, default=224, help="pixels per side")
    p.add_argument("--class_dim", type=int, default=102, help="number of classes")
    p.add_argument("--batch_size", type=int, default=32, help="images per step and process")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--max_steps", type=int, default=0, help="stop after so many steps (0: do not)")
    p.add_argument("--lr", type=float, default=0.01, help="learning rate")
    p.add_argument("--print_every", type=int, default=5, help="print every n-th batch")
    p.add_argument("--save", default="", help="write an inference model under this path when done")
    p.add_argument("--no_fuse", dest="fuse", action="store_false", help="without compute fusions")
    return p


if __name__ == "__main__":
    train_mobilenet(parser(__doc__).parse_args())
