# run: fleetrun --paddle --server_num=2 --worker_num=2
# expect: worker 1 of 2, servers 2
# expect: saved: .*__model__
# falls: epoch \d+: loss (\d+\.\d+)
# suite: fast
"""CTR-DNN with the parameter servers of fleet 1.x, synchronous: StrategyFactory.create_sync_strategy()."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.incubate.fleet.base.role_maker as role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import StrategyFactory

DENSE, SLOTS, VOCABULARY, BATCH, STEPS, EPOCHS = 5, 4, 20, 32, 10, 3


def input_data():
    dense = fluid.layers.data(name="dense_input", shape=[DENSE], dtype="float32")
    slots = [fluid.layers.data(name="C%d" % i, shape=[1], dtype="int64") for i in range(1, SLOTS + 1)]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    return [dense] + slots + [label]


def net(inputs):
    def embed(ids):
        rows = fluid.layers.embedding(
            input=ids,
            size=[VOCABULARY, 8],
            is_sparse=True,
            param_attr=fluid.ParamAttr(name="SparseFeatFactors", initializer=fluid.initializer.Uniform()),
        )
        return fluid.layers.reshape(rows, [-1, 8])

    concated = fluid.layers.concat([embed(ids) for ids in inputs[1:-1]] + [inputs[0]], axis=1)
    for i, size in enumerate([32, 16]):
        concated = fluid.layers.fc(
            input=concated,
            size=size,
            act="relu",
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Xavier()),
            name="fc_%d" % i,
        )
    predict = fluid.layers.fc(input=concated, size=2, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=inputs[-1])
    avg_cost = fluid.layers.reduce_mean(cost)
    auc, batch_auc, _ = fluid.layers.auc(input=predict, label=inputs[-1], num_thresholds=2**12)
    return avg_cost, auc, predict


def reader(worker):
    rng = np.random.RandomState(worker)
    for _ in range(STEPS):
        dense = rng.rand(BATCH, DENSE).astype("float32")
        ids = rng.randint(0, VOCABULARY, (SLOTS, BATCH, 1)).astype("int64")
        label = (ids.mean(axis=0) > VOCABULARY / 2).astype("int64")
        yield [dense] + list(ids) + [label]


role = role_maker.PaddleCloudRoleMaker()
fleet.init(role)
inputs = input_data()
avg_cost, auc, predict = net(inputs)
strategy = StrategyFactory.create_sync_strategy()
optimizer = fluid.optimizer.Adam(learning_rate=0.05)
optimizer = fleet.distributed_optimizer(optimizer, strategy)
optimizer.minimize(avg_cost)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
elif fleet.is_worker():
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.init_worker()
    exe.run(fleet.startup_program)
    print("worker %d of %d, servers %d" % (fleet.worker_index(), fleet.worker_num(), fleet.server_num()))
    names = [var.name for var in inputs]
    for epoch in range(EPOCHS):
        losses = []
        for batch in reader(fleet.worker_index()):
            loss, value = exe.run(fleet.main_program, feed=dict(zip(names, batch)), fetch_list=[avg_cost, auc])
            losses.append(loss[0])
        if fleet.is_first_worker():
            print("epoch %d: loss %.4f auc %.4f" % (epoch, np.mean(losses), value[0]))
    if fleet.is_first_worker():
        fleet.save_persistables(exe, "persistables", fleet.main_program)
        fleet.save_inference_model(exe, "inference", names[:-1], [predict])
        print("saved: %s" % sorted(os.listdir("inference")))
    fleet.stop_worker()
