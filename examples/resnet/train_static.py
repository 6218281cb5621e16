"""The single-card program of the quick start: ResNet on the flowers data set.

python train_static.py                                          ResNet50, 224 px, batch 32
python train_static.py --layers 18 --image_size 32 --epochs 2   a minute on two cores
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import time
from typing import Any

import numpy as np
import resnet

import argosy as paddle


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--layers", type=int, default=50, choices=sorted(resnet.BLOCKS), help="depth of the ResNet"
    )
    p.add_argument("--image_size", type=int, default=224, help="pixels per side")
    p.add_argument("--class_dim", type=int, default=102, help="number of classes")
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--max_steps", type=int, default=0, help="stop after so many steps (0: do not)")
    p.add_argument("--lr", type=float, default=0.01, help="learning rate")
    p.add_argument("--print_every", type=int, default=5, help="print every n-th batch")
    p.add_argument("--save", default="", help="write an inference model under this path when done")
    return p.parse_args()


def get_train_loader(feed_list: list[Any], place: Any, args: argparse.Namespace) -> Any:
    """Batches of the training images, read in the background."""
    reader = paddle.dataset.flowers.train(use_xmap=True, image_size=args.image_size)
    shuffled = paddle.reader.shuffle(reader, buf_size=1024)
    loader = paddle.io.DataLoader.from_generator(
        feed_list=feed_list, capacity=32, use_double_buffer=True, iterable=True
    )
    batches = paddle.batch(shuffled, batch_size=args.batch_size, drop_last=True)
    loader.set_sample_list_generator(batches, place)
    return loader


def optimizer_setting(args: argparse.Namespace) -> Any:
    return paddle.optimizer.Momentum(
        learning_rate=args.lr, momentum=0.9, weight_decay=paddle.regularizer.L2Decay(1e-4)
    )


def test_accuracy(exe: Any, program: Any, fetch: Any, args: argparse.Namespace) -> float:
    """The share of test images whose class is found."""
    reader = paddle.batch(paddle.dataset.flowers.test(image_size=args.image_size), args.batch_size)
    right = total = 0.0
    for samples in reader():
        image = np.stack([s[0] for s in samples]).reshape(-1, 3, args.image_size, args.image_size)
        label = np.array([[s[1]] for s in samples], "int64")
        (acc,) = exe.run(program, feed={"x": image, "y": label}, fetch_list=[fetch])
        right, total = right + float(acc) * len(samples), total + len(samples)
    return right / total


def train_resnet(args: argparse.Namespace) -> None:
    # 1. static mode
    paddle.enable_static()

    # 2. network, loss and optimizer
    paddle.vision.set_image_backend("cv2")
    shape = [None, 3, args.image_size, args.image_size]
    image = paddle.static.data(name="x", shape=shape, dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    model = resnet.ResNet(layers=args.layers)
    out = model.net(input=image, class_dim=args.class_dim)
    avg_cost = paddle.nn.functional.cross_entropy(input=out, label=label)
    acc_top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    acc_top5 = paddle.metric.accuracy(input=out, label=label, k=5)
    test_program = paddle.static.default_main_program().clone(for_test=True)

    place: Any = paddle.CPUPlace()
    if paddle.is_compiled_with_cuda():
        place = paddle.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", "0")))  # noqa: SIM112  (Paddle's name)
    train_loader = get_train_loader([image, label], place, args)

    optimizer = optimizer_setting(args)
    optimizer.minimize(avg_cost)

    exe = paddle.static.Executor(place)
    exe.run(paddle.static.default_startup_program())

    # 3. train and print
    progress = paddle.utils.TrainingProgress(args.print_every)
    step, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for batch_id, data in progress.batches(train_loader(), f"[Epoch {epoch}]"):
            loss, acc1, acc5 = exe.run(
                paddle.static.default_main_program(),
                feed=data,
                fetch_list=[avg_cost.name, acc_top1.name, acc_top5.name],
            )
            progress.line(
                batch_id,
                "[Epoch %d, batch %d] loss: %.5f, acc1: %.5f, acc5: %.5f"  # noqa: UP031  (the seeds' line)
                % (epoch, batch_id, loss, acc1, acc5),
            )
            step += 1
            if step == args.max_steps:
                break
        if step == args.max_steps:
            break
    seconds = time.perf_counter() - began
    print(f"{step} steps in {seconds:.1f} s, {step * args.batch_size / seconds:.1f} images/s")
    print(f"test acc1: {test_accuracy(exe, test_program, acc_top1, args):.5f}")
    if args.save:
        paddle.static.save_inference_model(args.save, [image], [out], exe)
        print(f"inference model written to {args.save}.pdmodel")


if __name__ == "__main__":
    train_resnet(parse())
