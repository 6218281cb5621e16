# run: fleetrun --paddle --nproc_per_node=4
# expect: epoch 3 is next
# expect: checkpoints: \['__paddle_fleet_checkpoint__.2'\]
# falls: epoch \d+: loss (\d+\.\d+)
"""The collective fleet of 1.x: mode "collective", hierarchical all-reduce, two communicators, checkpoints."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import CollectiveOptimizer, DistributedStrategy, TrainStatus, fleet
from paddle.fluid.incubate.fleet.utils.fs import LocalFS

endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
role = role_maker.UserDefinedCollectiveRoleMaker(
    current_id=int(os.environ["PADDLE_TRAINER_ID"]), worker_endpoints=endpoints
)
fleet.init(role)

x = fluid.layers.data(name="x", shape=[12], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
hidden = fluid.layers.fc(input=x, size=20, act="tanh")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(input=hidden, size=1), y))

strategy = DistributedStrategy()
strategy.mode = "collective"
strategy.collective_mode = "grad_allreduce"
strategy.nccl_comm_num = 2
strategy.use_hierarchical_allreduce = True
strategy.hierarchical_allreduce_inter_nranks = 2
strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.CoeffNumDevice
strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.AllReduce
strategy.enable_sequential_execution = True
strategy.enable_backward_optimizer_op_deps = True
strategy.cache_runtime_context = True
strategy.remove_unnecessary_lock = True
strategy.num_trainers = fleet.worker_num()
strategy.trainer_id = fleet.worker_index()
strategy.trainers_endpoints = fleet.worker_endpoints()
strategy.use_local_sgd = False
strategy.use_dist_fc = False
strategy.dist_fc_config = None
strategy.forward_recompute = False
strategy.recompute_checkpoints = []
strategy.use_amp = False
strategy.amp_loss_scaling = 2**15
strategy.exec_strategy.num_threads = 3
optimizer = fleet.distributed_optimizer(fluid.optimizer.Adam(learning_rate=0.02), strategy)
assert isinstance(optimizer, CollectiveOptimizer)
optimizer.minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
weight = np.random.RandomState(3).randn(12, 1)
fs = LocalFS()
for epoch in range(3):
    rng = np.random.RandomState(100 * epoch + fleet.worker_index())
    losses = []
    for _ in range(10):
        batch = rng.randn(8, 12)
        feed = {"x": batch.astype("float32"), "y": np.tanh(batch.dot(weight)).astype("float32")}
        losses.append(exe.run(fleet.main_program, feed=feed, fetch_list=[loss])[0][0])
    if fleet.is_first_worker():
        print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
        fleet.save_checkpoint(
            exe, "checkpoints", trainer_id=0, train_status=TrainStatus(epoch), fs=fs, remain_all_checkpoint=False
        )
fleet.barrier_worker()
status = fleet.load_checkpoint(exe, "checkpoints", trainer_id=fleet.worker_index(), fs=fs)
if fleet.is_first_worker():
    print("epoch %d is next" % status.next())
    print("checkpoints: %s" % fs.list_dirs("checkpoints"))
