"""A small convolutional net on generated images, for pages that show a running job: train_collective.py STEPS."""

# SPDX-License-Identifier: Apache-2.0
import sys
import time

import numpy as np

import argosy as paddle
from argosy import metrics
from argosy.distributed import fleet
from argosy.static import nn

BATCH = 16
PAUSE_S = 0.01

paddle.enable_static()
paddle.seed(3)
fleet.init(is_collective=True)
image = paddle.static.data("image", [None, 3, 32, 32], "float32")
label = paddle.static.data("label", [None, 1], "int64")
hidden = nn.conv2d(image, 16, 3, act="relu")
hidden = nn.conv2d(hidden, 32, 3, stride=2, act="relu")
hidden = nn.conv2d(hidden, 32, 3, stride=2, act="relu")
logits = nn.fc(hidden, 10)
loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01, 0.9)).minimize(loss)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
metrics.watch(loss=loss)
generator = np.random.default_rng(fleet.worker_index())
for step in range(1, int(sys.argv[1]) + 1):
    labels = generator.integers(0, 10, (BATCH, 1))
    images = generator.normal(labels[..., None, None] / 10, 1, (BATCH, 3, 32, 32)).astype("float32")
    (value,) = exe.run(feed={"image": images, "label": labels}, fetch_list=[loss])
    if step % 20 == 0:
        metrics.log(step=step, lr=0.01 * 0.98 ** (step // 20), reduce="last")
        print(f"step {step}: loss {value.item():.4f}", flush=True)
    time.sleep(PAUSE_S)
