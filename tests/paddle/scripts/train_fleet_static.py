# -*- coding: UTF-8 -*-
# mypy: ignore-errors
# ruff: noqa
# A training script as one writes it for Paddle 2.0's static mode; nothing in here knows of Argosy.
# SPDX-License-Identifier: Apache-2.0
import os
import sys

import numpy as np
import paddle
import resnet_static as resnet
from paddle.distributed import fleet

base_lr = 0.01
momentum_rate = 0.9
l2_decay = 1e-4
epoch = 1
batch_size = 4
class_dim = 10
image_size = 32
steps = 2


def sample_reader():
    random = np.random.RandomState(0)
    for _ in range(batch_size * steps):
        yield random.rand(3 * image_size * image_size).astype("float32"), int(random.randint(class_dim))


def optimizer_setting(parameter_list=None):
    return paddle.optimizer.Momentum(
        learning_rate=base_lr,
        momentum=momentum_rate,
        weight_decay=paddle.regularizer.L2Decay(l2_decay),
        parameters=parameter_list,
    )


def get_train_loader(feed_list, place):
    loader = paddle.io.DataLoader.from_generator(
        capacity=32, use_double_buffer=True, feed_list=feed_list, iterable=True
    )
    train_reader = paddle.batch(sample_reader, batch_size=batch_size, drop_last=True)
    loader.set_sample_list_generator(train_reader, place)
    return loader


def train_resnet():
    print("Start collective training example:")
    paddle.enable_static()
    paddle.vision.set_image_backend("cv2")

    image = paddle.static.data(name="x", shape=[None, 3, image_size, image_size], dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    model = resnet.ResNet(layers=int(sys.argv[1]))
    out = model.net(input=image, class_dim=class_dim)
    avg_cost = paddle.nn.functional.cross_entropy(input=out, label=label)
    acc_top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    acc_top5 = paddle.metric.accuracy(input=out, label=label, k=5)

    place = paddle.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))
    print("Run on {}.".format(place))
    train_loader = get_train_loader([image, label], place)

    strategy = fleet.DistributedStrategy()
    strategy.build_strategy = paddle.static.BuildStrategy()
    strategy.execution_strategy = paddle.static.ExecutionStrategy()
    fleet.init(is_collective=True, strategy=strategy)
    optimizer = optimizer_setting()
    optimizer = fleet.distributed_optimizer(optimizer)
    optimizer.minimize(avg_cost)

    exe = paddle.static.Executor(place)
    print("Execute startup program.")
    exe.run(paddle.static.default_startup_program())
    with open(sys.argv[2], "w") as f:
        f.write(str(paddle.static.default_main_program()))

    for eop in range(epoch):
        for batch_id, data in enumerate(train_loader()):
            loss, acc1, acc5 = exe.run(
                paddle.static.default_main_program(),
                feed=data,
                fetch_list=[avg_cost.name, acc_top1.name, acc_top5.name],
            )
            print(
                "[Epoch %d, batch %d] loss: %.5f, acc1: %.5f, acc5: %.5f" % (eop, batch_id, loss, acc1, acc5)
            )


if __name__ == "__main__":
    train_resnet()
