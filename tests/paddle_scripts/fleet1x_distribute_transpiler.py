# run: fleetrun --paddle --server_num=2 --worker_num=2
# expect: trainer 1 has finished
# falls: batch \d+: cost (\d+\.\d+)
"""Recognize digits with fluid.DistributeTranspiler itself; roles and endpoints are read from the environment."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid


def network():
    img = fluid.layers.data(name="img", shape=[1, 8, 8], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    conv_pool = fluid.nets.simple_img_conv_pool(
        input=img, filter_size=3, num_filters=4, pool_size=2, pool_stride=2, act="relu"
    )
    prediction = fluid.layers.fc(input=conv_pool, size=4, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))


def reader(seed):
    rng = np.random.RandomState(seed)
    patterns = np.random.RandomState(0).rand(4, 1, 8, 8)

    def batches():
        for _ in range(25):
            label = rng.randint(0, 4, 16)
            yield [((patterns[i] + 0.1 * rng.randn(1, 8, 8)).astype("float32"), int(i)) for i in label]

    return batches


pserver_endpoints = os.getenv("PADDLE_PSERVERS_IP_PORT_LIST")
trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
current_endpoint = os.getenv("POD_IP", "") + ":" + os.getenv("PADDLE_PORT", "")
training_role = os.getenv("TRAINING_ROLE", "TRAINER")

avg_cost = network()
fluid.optimizer.Adam(learning_rate=0.02).minimize(avg_cost)
config = fluid.DistributeTranspilerConfig()
config.min_block_size = 8192
t = fluid.DistributeTranspiler(config=config)
t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers, sync_mode=True)
exe = fluid.Executor(fluid.CPUPlace())

if training_role == "PSERVER":
    pserver_program = t.get_pserver_program(current_endpoint)
    startup_program = t.get_startup_program(current_endpoint, pserver_program)
    exe.run(startup_program)
    exe.run(pserver_program)
elif training_role == "TRAINER":
    trainer_program = t.get_trainer_program()
    exe.run(fluid.default_startup_program())
    block = trainer_program.global_block()
    feeder = fluid.DataFeeder(feed_list=[block.var("img"), block.var("label")], place=fluid.CPUPlace())
    for number, data in enumerate(reader(trainer_id + 1)()):
        (cost,) = exe.run(trainer_program, feed=feeder.feed(data), fetch_list=[avg_cost])
        if number % 8 == 0 and trainer_id == 0:
            print("batch %d: cost %.4f" % (number, cost[0]))
    if trainer_id == 0:
        fluid.io.save_persistables(exe, "digits", trainer_program)
    exe.close()
    print("trainer %d has finished" % trainer_id)
