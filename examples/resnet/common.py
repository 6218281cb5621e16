"""What the scripts that learn flowers share, here and in examples/mobilenet: arguments, data, optimizer, testing."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import os
from typing import Any

import numpy as np
import resnet

import argosy as paddle


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of any net."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--image_size", type=int, default=224, help="pixels per side")
    p.add_argument("--class_dim", type=int, default=102, help="number of classes")
    p.add_argument("--batch_size", type=int, default=32, help="images per step and process")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--max_steps", type=int, default=0, help="stop after so many steps (0: do not)")
    p.add_argument("--lr", type=float, default=0.01, help="learning rate")
    p.add_argument("--shuffle", type=int, default=1024, help="images out of which the next one is drawn")
    p.add_argument("--print_every", type=int, default=5, help="print every n-th batch")
    p.add_argument("--test_batches", type=int, default=0, help="test on so many batches (0: on all)")
    p.add_argument("--save", default="", help="write an inference model under this path when done")
    return p


def resnet_parser(description: str | None) -> argparse.ArgumentParser:
    """Those of a ResNet."""
    p = parser(description)
    p.add_argument(
        "--layers", type=int, default=50, choices=sorted(resnet.BLOCKS), help="depth of the ResNet"
    )
    return p


def get_place() -> Any:
    """The GPU that the launcher gave this process, or the CPU."""
    if paddle.is_compiled_with_cuda():
        return paddle.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", "0")))  # noqa: SIM112  (Paddle's name)
    return paddle.CPUPlace()


def get_train_loader(
    feed_list: list[Any], place: Any, args: argparse.Namespace, share: tuple[int, int] = (0, 1)
) -> Any:
    """Batches of the training images, read in the background; `share`: (rank, ranks)."""
    reader = paddle.dataset.flowers.train(
        use_xmap=True, buffered_size=args.shuffle, image_size=args.image_size, share=share
    )
    shuffled = paddle.reader.shuffle(reader, buf_size=args.shuffle, seed=0)
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
    """The share of test images whose class is found; of the first --test_batches batches, if asked for."""
    images = paddle.dataset.flowers.test(buffered_size=args.shuffle, image_size=args.image_size)
    reader = paddle.batch(images, args.batch_size)
    right = total = 0.0
    for samples in itertools.islice(reader(), args.test_batches or None):
        image = np.stack([s[0] for s in samples]).reshape(-1, 3, args.image_size, args.image_size)
        label = np.array([[s[1]] for s in samples], "int64")
        (acc,) = exe.run(program, feed={"x": image, "y": label}, fetch_list=[fetch])
        right, total = right + float(acc) * len(samples), total + len(samples)
    return right / total
