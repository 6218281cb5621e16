# run: fleetrun --paddle --nproc_per_node=2
# expect: the workers have the same parameters: True
# falls: step \d+: loss (\d+\.\d+)
"""Local SGD with the collective fleet of 1.x: each worker updates, then the parameters are averaged."""

from __future__ import print_function

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
x = fluid.layers.data(name="x", shape=[6], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=10, act="relu")
prediction = fluid.layers.fc(input=hidden, size=2, act="softmax")
cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))

dist_strategy = DistributedStrategy()
dist_strategy.use_local_sgd = True
optimizer = fluid.optimizer.SGD(learning_rate=0.5)
optimizer = fleet.distributed_optimizer(optimizer, strategy=dist_strategy)
optimizer.minimize(cost)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(fleet.worker_index())
for step in range(31):
    batch = rng.randn(16, 6).astype("float32")
    labels = (batch[:, :1] + batch[:, 1:2] > 0).astype("int64")
    (value,) = exe.run(fluid.default_main_program(), feed={"x": batch, "label": labels}, fetch_list=[cost])
    if step % 10 == 0 and fleet.is_first_worker():
        print("step %d: loss %.4f" % (step, value[0]))

scope = fluid.global_scope()
norms = [
    float(np.square(np.array(scope.find_var(param.name).get_tensor())).sum())
    for param in fluid.default_main_program().all_parameters()
]
total = [0.0] * len(norms)
fleet.all_reduce_worker(norms, total)
same = np.allclose(total, [fleet.worker_num() * norm for norm in norms], rtol=1e-5)
print("the workers have the same parameters: %s" % same)
