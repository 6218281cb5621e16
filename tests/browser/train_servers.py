"""Clicks with a table on parameter servers, for pages that show a running job: train_servers.py STEPS."""

# SPDX-License-Identifier: Apache-2.0
import sys
import time
from typing import Any

import numpy as np

import argosy as paddle
from argosy import metrics
from argosy.distributed import fleet

BATCH, NUMBERS, CATEGORIES, ROWS, WIDTH = 32, 13, 8, 20_000, 8
PAUSE_S = 0.01


def wide_and_deep() -> Any:
    """The loss."""
    numbers = paddle.static.data("numbers", [None, NUMBERS], "float32")
    categories = paddle.static.data("categories", [None, CATEGORIES], "int64")
    label = paddle.static.data("label", [None, 1], "int64")
    attr = paddle.ParamAttr(name="clicks", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1))
    rows = paddle.static.nn.sparse_embedding(categories, size=[ROWS, WIDTH], param_attr=attr)
    deep = paddle.concat([paddle.reshape(rows, [-1, CATEGORIES * WIDTH]), numbers], axis=1)
    for size in (64, 64):
        deep = paddle.static.nn.fc(deep, size, activation="relu")
    logit = paddle.add(paddle.static.nn.fc(numbers, 1), paddle.static.nn.fc(deep, 1))
    losses = paddle.nn.functional.log_loss(paddle.nn.functional.sigmoid(logit), paddle.cast(label, "float32"))
    return paddle.mean(losses)


paddle.enable_static()
paddle.seed(11)
fleet.init()
loss = wide_and_deep()
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
fleet.init_worker()
metrics.watch(loss=loss)
generator = np.random.default_rng(fleet.worker_index())
for step in range(1, int(sys.argv[1]) + 1):
    feed = {
        "numbers": generator.random((BATCH, NUMBERS), dtype="float32"),
        "categories": generator.integers(0, ROWS, (BATCH, CATEGORIES)),
        "label": generator.integers(0, 2, (BATCH, 1)),
    }
    (value,) = exe.run(feed=feed, fetch_list=[loss])
    if step % 20 == 0:
        print(f"step {step}: loss {value.item():.4f}", flush=True)
    time.sleep(PAUSE_S)
fleet.stop_worker()
