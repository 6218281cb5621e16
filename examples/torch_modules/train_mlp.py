"""A torch.nn.Module inside a program: an MLP that reads digits.

    python train_mlp.py --epochs 2

The module is written for torch and knows nothing of Argosy; called on a Variable it becomes part of the
program, and its parameters are trained by the program's optimizer. `write_back` puts the trained values
into the module again.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse

import numpy as np
import torch
from torch import nn

import argosy as paddle


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch_size", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--max_steps", type=int, default=0, help="stop an epoch after so many steps (0: do not)")
    args = p.parse_args()

    paddle.enable_static()
    image = paddle.static.data("image", [None, 784], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    module = nn.Sequential(
        nn.Linear(784, 200), nn.ReLU(), nn.Dropout(0.2), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    logits = module(image)
    loss = paddle.nn.functional.cross_entropy(logits, label)
    accuracy = paddle.metric.accuracy(logits, label)
    test_program = paddle.static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(args.lr).minimize(loss)

    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    reader = paddle.reader.shuffle(paddle.dataset.mnist.train(), 8192)
    feeder = paddle.fluid.DataFeeder([image, label])
    progress = paddle.utils.TrainingProgress(print_every=20)
    for epoch in range(args.epochs):
        for batch_id, samples in progress.batches(
            paddle.batch(reader, args.batch_size)(), f"[Epoch {epoch}]"
        ):
            cost, acc = exe.run(feed=feeder.feed(samples), fetch_list=[loss, accuracy])
            progress.line(
                batch_id, f"[Epoch {epoch}, batch {batch_id}] loss: {float(cost):.5f}, acc: {float(acc):.5f}"
            )
            if batch_id + 1 == args.max_steps:
                break

    batches = paddle.batch(paddle.dataset.mnist.test(), args.batch_size)()
    accuracies = [
        (exe.run(test_program, feed=feeder.feed(b), fetch_list=[accuracy])[0].item(), len(b)) for b in batches
    ]
    print(f"test accuracy: {np.average([a for a, _ in accuracies], weights=[n for _, n in accuracies]):.5f}")

    paddle.static.write_back(module)
    with torch.no_grad():
        sample = next(iter(paddle.dataset.mnist.test()()))
        digit = int(module.eval()(torch.as_tensor(sample[0]).reshape(1, 784)).argmax())
    print(f"the module itself, eager: first test image is a {digit} (label {sample[1]})")


if __name__ == "__main__":
    main()
