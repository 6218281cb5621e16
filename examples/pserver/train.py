"""A program for one process, transpiled to trainers and parameter servers; the role comes from the environment.

fleetrun --server_num=2 --worker_num=2 train.py                              an MLP on digits
fleetrun --server_num=1 --worker_num=2 train.py --model resnet --image_size 32 --max_steps 20
fleetrun --server_num=2 --worker_num=2 train.py --mode async --dc_asgd
python train.py                                                              one process, without servers

Without fleetrun, on each host: TRAINING_ROLE=PSERVER or TRAINER, PADDLE_PSERVERS_IP_PORT_LIST=a:6174,b:6174,
PADDLE_TRAINERS_NUM=2, for a trainer PADDLE_TRAINER_ID, for a server POD_IP and PADDLE_PORT.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy import fluid

sys.path.insert(0, str(Path(__file__).parent.parent / "resnet"))
import common
import resnet


def parser() -> argparse.ArgumentParser:
    p = common.resnet_parser(__doc__)
    p.set_defaults(layers=18, image_size=32, batch_size=32, epochs=2)
    p.add_argument("--model", choices=("mlp", "resnet"), default="mlp")
    p.add_argument("--mode", choices=("sync", "async", "half_async", "geo"), default="sync")
    p.add_argument(
        "--dc_asgd", action="store_true", help="async: compensate gradients for what has changed since"
    )
    p.add_argument(
        "--split_method", default="RoundRobin", help="how blocks are dealt out: RoundRobin or HashName"
    )
    p.add_argument("--no_slice", action="store_true", help="keep every parameter whole")
    p.add_argument("--print_programs", action="store_true", help="print what this process runs")
    return p


def mlp(args: argparse.Namespace) -> tuple[list[Any], Any, Any]:
    """Feeds, loss and accuracy of an MLP on MNIST's digits."""
    image = fluid.data("image", [None, 784], "float32")
    label = fluid.data("label", [None, 1], "int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, 200, act="relu"), 200, act="relu")
    out = fluid.layers.fc(hidden, 10)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, label))
    return [image, label], loss, fluid.layers.accuracy(fluid.layers.softmax(out), label)


def resnet_of(args: argparse.Namespace) -> tuple[list[Any], Any, Any]:
    """Feeds, loss and accuracy of a ResNet on flowers."""
    image = fluid.data("image", [None, 3, args.image_size, args.image_size], "float32")
    label = fluid.data("label", [None, 1], "int64")
    out = resnet.ResNet(layers=args.layers).net(input=image, class_dim=args.class_dim)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, label))
    return [image, label], loss, fluid.layers.accuracy(fluid.layers.softmax(out), label)


def digits(args: argparse.Namespace, trainer: int, trainers: int) -> Iterator[dict[str, Any]]:
    """This trainer's batches of one epoch."""
    samples = itertools.islice(paddle.dataset.mnist.train()(), trainer, None, trainers)
    while chunk := list(itertools.islice(samples, args.batch_size)):
        images, labels = zip(*chunk, strict=True)
        yield {"image": np.stack(images), "label": np.array(labels, dtype="int64").reshape(-1, 1)}


def main() -> None:
    args = parser().parse_args()
    paddle.enable_static()
    feeds, loss, accuracy = mlp(args) if args.model == "mlp" else resnet_of(args)
    fluid.optimizer.Momentum(learning_rate=args.lr, momentum=0.9).minimize(loss)
    main_program, startup = fluid.default_main_program(), fluid.default_startup_program()
    exe = fluid.Executor(fluid.CPUPlace())

    role = os.environ.get("TRAINING_ROLE", "")
    trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if role:
        config = fluid.DistributeTranspilerConfig()
        config.slice_var_up = not args.no_slice
        config.split_method = args.split_method
        config.enable_dc_asgd = args.dc_asgd
        config.half_async = args.mode == "half_async"
        config.geo_sgd_mode = args.mode == "geo"
        config.geo_sgd_need_push_nums = 10
        config.print_log = args.print_programs
        t = fluid.DistributeTranspiler(config=config)
        t.transpile(
            trainer,
            program=main_program,
            pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"],
            trainers=trainers,
            sync_mode=args.mode == "sync",
            startup_program=startup,
        )
        if role == "PSERVER":
            endpoint = f"{os.environ['POD_IP']}:{os.environ['PADDLE_PORT']}"
            server, server_startup = t.get_pserver_programs(endpoint)
            if args.print_programs:
                print(server_startup, server, sep="\n")
            exe.run(server_startup)
            exe.run(server)  # until all trainers have left
            return
        main_program = t.get_trainer_program()
    if args.print_programs:
        print(main_program)

    exe.run(startup)
    step = 0
    for epoch in range(args.epochs):
        batches = (
            digits(args, trainer, trainers)
            if args.model == "mlp"
            else common.get_train_loader(feeds, fluid.CPUPlace(), args, (trainer, trainers))()
        )
        for batch_id, data in enumerate(batches):
            cost, acc = exe.run(main_program, feed=data, fetch_list=[loss, accuracy])
            if batch_id % args.print_every == 0:
                print(
                    f"[Epoch {epoch}, batch {batch_id}] loss: {float(cost[0]):.5f}, acc: {float(acc[0]):.5f}",
                    flush=True,
                )
            step += 1
            if step == args.max_steps:
                break
        if step == args.max_steps:
            break
    exe.close()  # disconnect from the servers


if __name__ == "__main__":
    main()
