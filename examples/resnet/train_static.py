"""The single-card program of the quick start: ResNet on the flowers data set.

python train_static.py                                          ResNet50, 224 px, batch 32
python train_static.py --layers 18 --image_size 32 --epochs 2   a minute on two cores
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import time

import common
import resnet

import argosy as paddle


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

    place = common.get_place()
    train_loader = common.get_train_loader([image, label], place, args)

    optimizer = common.optimizer_setting(args)
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
    print(f"test acc1: {common.test_accuracy(exe, test_program, acc_top1, args):.5f}")
    if args.save:
        paddle.static.save_inference_model(args.save, [image], [out], exe)
        print(f"inference model written to {args.save}.pdmodel")


if __name__ == "__main__":
    train_resnet(common.resnet_parser(__doc__).parse_args())
