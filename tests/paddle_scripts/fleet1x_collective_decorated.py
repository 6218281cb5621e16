# run: fleetrun --paddle --nproc_per_node=2
# expect: loss scaling \d+
# falls: step \d+: loss (\d+\.\d+)
"""An optimizer of fluid.contrib.mixed_precision.decorate in the collective fleet of 1.x, with sync_batch_norm."""

from __future__ import print_function

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.contrib.mixed_precision import decorate
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
image = fluid.data(name="image", shape=[None, 1, 6, 6], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
conv = fluid.layers.conv2d(input=image, num_filters=6, filter_size=3, padding=1, bias_attr=False)
conv = fluid.layers.batch_norm(input=conv, act="relu")
pool = fluid.layers.pool2d(input=conv, pool_size=3, pool_stride=3, pool_type="max")
logits = fluid.layers.fc(input=pool, size=3)
loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))

dist_strategy = DistributedStrategy()
dist_strategy.sync_batch_norm = True
dist_strategy.exec_strategy.num_threads = 1
optimizer = fluid.optimizer.Momentum(learning_rate=0.05, momentum=0.9)
optimizer = decorate(optimizer, init_loss_scaling=128.0, use_dynamic_loss_scaling=True)
optimizer = fleet.distributed_optimizer(optimizer, strategy=dist_strategy)
optimizer.minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
patterns = np.random.RandomState(2).randn(3, 1, 6, 6)
rng = np.random.RandomState(fleet.worker_index())
for step in range(13):
    labels = rng.randint(0, 3, (12, 1))
    images = (patterns[labels[:, 0]] + 0.2 * rng.randn(12, 1, 6, 6)).astype("float32")
    (value,) = exe.run(fleet.main_program, feed={"image": images, "label": labels}, fetch_list=[loss])
    if step % 4 == 0 and fleet.is_first_worker():
        print("step %d: loss %.4f" % (step, value[0]))
print("loss scaling %d" % optimizer.get_loss_scaling())
