# run: fleetrun --paddle --nproc_per_node=2
# expect: activations: 3
# falls: step \d+: loss (\d+\.\d+)
"""Recompute and mixed precision by switches of the strategy of the collective fleet of 1.x."""

from __future__ import print_function

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet


def mlp(x, label, checkpoints):
    hidden = x
    for _ in range(3):
        hidden = fluid.layers.fc(input=hidden, size=32, act="relu")
        checkpoints.append(hidden)
    prediction = fluid.layers.fc(input=hidden, size=3, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))


fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
x = fluid.data(name="x", shape=[None, 10], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
checkpoints = []
loss = mlp(x, label, checkpoints)

strategy = DistributedStrategy()
strategy.forward_recompute = True
strategy.recompute_checkpoints = checkpoints
strategy.use_amp = True
strategy.amp_loss_scaling = 2.0**10
print("activations: %d" % len(strategy.recompute_checkpoints))
optimizer = fluid.optimizer.Adam(learning_rate=0.01)
optimizer = fleet.distributed_optimizer(optimizer, strategy)
optimizer.minimize(loss, parameter_list=None, no_grad_set=None)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fleet.startup_program)
centers = np.random.RandomState(5).randn(3, 10)
rng = np.random.RandomState(fleet.worker_index())
for step in range(25):
    labels = rng.randint(0, 3, (16, 1))
    batch = (centers[labels[:, 0]] + 0.5 * rng.randn(16, 10)).astype("float32")
    (value,) = exe.run(fleet.main_program, feed={"x": batch, "label": labels}, fetch_list=[loss])
    if step % 8 == 0 and fleet.worker_index() == 0:
        print("step %d: loss %.4f" % (step, value[0]))
if fleet.worker_index() == 0:
    fleet.save_persistables(exe, "mlp", fleet.main_program, filename="all")
