"""The quick start on many processes: train_static.py with its three changes.

fleetrun --gpus=0,1 train_fleet_static.py                                   ResNet50, 224 px, batch 32 each
fleetrun --nproc_per_node=2 train_fleet_static.py --layers 18 --image_size 32 --epochs 2
fleetrun --nproc_per_node=2 --max_restarts=3 train_fleet_static.py --checkpoint checkpoints
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import resnet

import argosy as paddle

# 1. import fleet
from argosy.distributed import fleet


def train_resnet(
    args: argparse.Namespace, strategy: fleet.DistributedStrategy | None = None, optimizer: Any = None
) -> None:
    model = resnet.ResNet(layers=args.layers)
    train(model.net, args, strategy or fleet.DistributedStrategy(), optimizer)


def train(
    net: Callable[..., Any],
    args: argparse.Namespace,
    strategy: fleet.DistributedStrategy,
    optimizer: Any = None,
) -> None:
    """Train a network that makes logits of images, test it, and save it if asked to."""
    paddle.enable_static()
    paddle.vision.set_image_backend("cv2")
    shape = [None, 3, args.image_size, args.image_size]
    image = paddle.static.data(name="x", shape=shape, dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    out = net(input=image, class_dim=args.class_dim)
    avg_cost = paddle.nn.functional.cross_entropy(input=out, label=label)
    acc_top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    acc_top5 = paddle.metric.accuracy(input=out, label=label, k=5)
    test_program = paddle.static.default_main_program().clone(for_test=True)

    # 2. initialise fleet: who is this process, and who are the others?
    strategy.sync_batch_norm = args.sync_batch_norm
    fleet.init(is_collective=True, strategy=strategy)

    place = common.get_place()
    share = (fleet.worker_index(), fleet.worker_num())  # each rank reads its own images
    train_loader = common.get_train_loader([image, label], place, args, share)

    # 3. the optimizer for all ranks, from that for one
    optimizer = optimizer or common.optimizer_setting(args)
    optimizer = fleet.distributed_optimizer(optimizer)
    optimizer.minimize(avg_cost)

    exe = paddle.static.Executor(place)
    exe.run(paddle.static.default_startup_program())

    step, began = 0, time.perf_counter()
    for epoch, batch_id, data in batches(train_loader, exe, args):
        loss, acc1, acc5 = exe.run(
            paddle.static.default_main_program(),
            feed=data,
            fetch_list=[avg_cost.name, acc_top1.name, acc_top5.name],
        )
        if batch_id % args.print_every == 0:
            print(
                "[Epoch %d, batch %d] loss: %.5f, acc1: %.5f, acc5: %.5f"  # noqa: UP031  (the seeds' line)
                % (epoch, batch_id, loss, acc1, acc5),
                flush=True,
            )
        step += 1
        if step == args.max_steps:
            break
    seconds = time.perf_counter() - began
    images = step * args.batch_size * fleet.worker_num()
    if fleet.is_first_worker():
        print(
            f"{step} steps on {fleet.worker_num()} ranks in {seconds:.1f} s, {images / seconds:.1f} images/s"
        )
        print(f"test acc1: {common.test_accuracy(exe, test_program, acc_top1, args):.5f}")
        if args.save:
            paddle.static.save_inference_model(args.save, [image], [out], exe)
            print(f"inference model written to {args.save}.pdmodel")


def batches(loader: Any, exe: Any, args: argparse.Namespace) -> Iterator[tuple[int, int, Any]]:
    """(epoch, batch number, batch) of all epochs; with --checkpoint from where the last run was ended."""
    if args.checkpoint:
        checkpoint = fleet.Checkpoint(args.checkpoint, every=args.checkpoint_every)
        yield from checkpoint.batches(loader, args.epochs, exe)
        return
    for epoch in range(args.epochs):
        for batch_id, data in enumerate(loader()):
            yield epoch, batch_id, data


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of a ResNet on many processes."""
    return for_fleet(common.resnet_parser(description))


def for_fleet(p: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The same parser, with what many processes need."""
    p.add_argument("--sync_batch_norm", action="store_true", help="batch statistics of all ranks")
    p.add_argument(
        "--checkpoint", default="", help="folder for checkpoints; a restart resumes from the newest"
    )
    p.add_argument("--checkpoint_every", type=int, default=100, help="steps between checkpoints")
    return p


if __name__ == "__main__":
    train_resnet(parser(__doc__).parse_args())
