"""The first step of an MLP on every rank; rank 0 writes the time of its end to the file given."""

# SPDX-License-Identifier: Apache-2.0
import sys
import time
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

x = paddle.static.data("x", [None, 784])
y = paddle.static.data("y", [None, 1], "int64")
hidden = paddle.static.nn.fc(paddle.static.nn.fc(x, 256, activation="relu"), 128, activation="relu")
loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 10), y)
fleet.init(is_collective=True)
fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01, 0.9)).minimize(loss)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
feed = {"x": np.ones((32, 784), "float32"), "y": np.ones((32, 1), "int64")}
exe.run(feed=feed, fetch_list=[loss])
if fleet.is_first_worker():
    Path(sys.argv[1]).write_text(str(time.time()))
