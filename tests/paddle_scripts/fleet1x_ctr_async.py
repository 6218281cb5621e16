# run: fleetrun --paddle --server_num=1 --worker_num=2
# expect: worker 1 reads \['part-2', 'part-3'\]
# expect: files of the save: .*__vars__
# falls: after pass \d+: loss (\d+\.\d+)
"""CTR-DNN with the parameter servers of fleet 1.x, asynchronous: files, fluid.DatasetFactory, train_from_dataset."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.incubate.fleet.base.role_maker as role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import StrategyFactory

SLOTS, VOCABULARY, LINES = 3, 100, 160


def write_part(path, seed):
    """Lines in the format of MultiSlotDataFeed: for each slot the number of values and the values."""
    rng = np.random.RandomState(seed)
    with open(path, "w") as part:
        for _ in range(LINES):
            ids = rng.randint(0, VOCABULARY, SLOTS)
            dense = rng.rand(2)
            click = int(ids[0] % 2 and dense[0] > 0.3)
            fields = ["1 %d" % i for i in ids] + ["2 %.4f %.4f" % tuple(dense), "1 %d" % click]
            part.write(" ".join(fields) + "\n")


def ctr_net():
    slots = [fluid.layers.data(name="slot_%d" % i, shape=[1], dtype="int64") for i in range(SLOTS)]
    dense = fluid.layers.data(name="dense", shape=[2], dtype="float32")
    label = fluid.layers.data(name="click", shape=[1], dtype="int64")
    rows = [
        fluid.layers.embedding(
            input=slot, size=[VOCABULARY, 8], is_sparse=True, is_distributed=True, param_attr=fluid.ParamAttr(name="emb")
        )
        for slot in slots
    ]
    rows = [fluid.layers.reshape(row, [-1, 8]) for row in rows]
    hidden = fluid.layers.fc(input=fluid.layers.concat(rows + [dense], axis=1), size=16, act="relu")
    predict = fluid.layers.fc(input=hidden, size=2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=label))
    return slots + [dense, label], loss


fleet.init(role_maker.PaddleCloudRoleMaker())
inputs, loss = ctr_net()
optimizer = fluid.optimizer.Adagrad(learning_rate=0.1)
optimizer = fleet.distributed_optimizer(optimizer, StrategyFactory.create_async_strategy())
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    parts = ["part-%d" % i for i in range(4)]
    mine = fleet.split_files(parts)
    print("worker %d reads %s" % (fleet.worker_index(), mine))
    for part in mine:
        write_part(part, int(part[-1]))

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fleet.init_worker()
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_use_var(inputs)
    dataset.set_pipe_command("cat")
    dataset.set_batch_size(16)
    dataset.set_thread(1)
    dataset.set_filelist(mine)
    dataset.load_into_memory()

    rng = np.random.RandomState(9)
    ids = rng.randint(0, VOCABULARY, (SLOTS, 64, 1)).astype("int64")
    dense = rng.rand(64, 2).astype("float32")
    click = ((ids[0] % 2 == 1) & (dense[:, :1] > 0.3)).astype("int64")
    feed = {var.name: value for var, value in zip(inputs, list(ids) + [dense, click])}
    for number in range(4):
        dataset.global_shuffle(fleet)
        exe.train_from_dataset(program=fleet.main_program, dataset=dataset, print_period=1000)
        fleet.barrier_worker()
        if fleet.is_first_worker():
            (value,) = exe.run(fleet.main_program, feed=feed, fetch_list=[loss])
            print("after pass %d: loss %.4f" % (number, value[0]))
    if fleet.is_first_worker():
        fleet.save_persistables(executor=exe, dirname="model")
        print("files of the save: %s" % sorted(os.listdir("model")))
    fleet.stop_worker()
