# run: fleetrun --paddle --server_num=2 --worker_num=2
# expect: transpiler: fc_0.w_0
# expect: workers together: 120 samples
# falls: step \d+: loss (\d+\.\d+)
"""fleet 1.x with a DistributeTranspilerConfig as strategy: asynchronous, whole variables on the servers."""

from __future__ import print_function

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.incubate.fleet.base.role_maker as role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspilerConfig

role = role_maker.GeneralRoleMaker(path="./tmp", init_timeout_seconds=600)
fleet.init(role)

x = fluid.layers.data(name="x", shape=[16], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=24, act="relu")
predict = fluid.layers.fc(input=hidden, size=3, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=y))
acc = fluid.layers.accuracy(input=predict, label=y)

config = DistributeTranspilerConfig()
config.sync_mode = False
config.runtime_split_send_recv = True
config.slice_var_up = False
config.split_method = fluid.transpiler.HashName
config.print_log = True
optimizer = fluid.optimizer.MomentumOptimizer(learning_rate=0.05, momentum=0.9)
fleet.distributed_optimizer(optimizer, config).minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
if fleet.is_worker():
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.init_worker()
    exe.run(fleet.startup_program)
    centers = np.random.RandomState(1).randn(3, 16)
    rng = np.random.RandomState(10 + fleet.worker_index())
    samples = 0
    for step in range(20):
        labels = rng.randint(0, 3, (3, 1))
        batch = (centers[labels[:, 0]] + 0.3 * rng.randn(3, 16)).astype("float32")
        value, _ = exe.run(fleet.main_program, feed={"x": batch, "y": labels}, fetch_list=[loss, acc])
        samples += len(batch)
        if step % 19 == 0 and fleet.is_first_worker():
            print("step %d: loss %.4f" % (step, value[0]))
    total = [0]
    fleet.all_reduce_worker([samples], total)
    if fleet.is_first_worker():
        print("workers together: %d samples" % total[0])
    fleet.stop_worker()
