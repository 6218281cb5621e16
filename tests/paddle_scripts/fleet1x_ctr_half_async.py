# run: fleetrun --paddle --server_num=1 --worker_num=2
# expect: threads 1, async_mode True
# falls: epoch \d+: loss (\d+\.\d+)
"""CTR-DNN with the half-asynchronous strategy of fleet 1.x: a DataLoader, and fluid.CompiledProgram."""

from __future__ import print_function

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import StrategyFactory

VOCABULARY = 80


def generator(worker):
    def batches():
        rng = np.random.RandomState(worker + 1)
        for _ in range(12):
            ids = rng.randint(0, VOCABULARY, (24, 1)).astype("int64")
            yield ids, (ids % 3 == 0).astype("float32")

    return batches


fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=False))
ids = fluid.data(name="ids", shape=[None, 1], dtype="int64")
click = fluid.data(name="click", shape=[None, 1], dtype="float32")
loader = fluid.io.DataLoader.from_generator(feed_list=[ids, click], capacity=4, iterable=True)
row = fluid.embedding(
    ids, size=[VOCABULARY, 6], is_sparse=True, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.1, 0.1))
)
hidden = fluid.layers.fc(fluid.layers.reshape(row, [-1, 6]), size=12, act="tanh")
logit = fluid.layers.fc(hidden, size=1)
loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(logit, click))

strategy = StrategyFactory.create_half_async_strategy()
strategy.set_trainer_runtime_config({"communicator_send_wait_times": 5})
strategy.set_program_config({"min_block_size": 8192})
build_strategy = strategy.get_build_strategy()
exec_strategy = strategy.get_execute_strategy()
print("threads %d, async_mode %s" % (exec_strategy.num_threads, build_strategy.async_mode))
optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(learning_rate=0.5), strategy)
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
elif fleet.is_worker():
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    fleet.init_worker()
    exe.run(fleet.startup_program)
    compiled = fluid.CompiledProgram(fleet.main_program).with_data_parallel(
        loss_name=loss.name, build_strategy=build_strategy, exec_strategy=exec_strategy
    )
    loader.set_batch_generator(generator(fleet.worker_index()), places=place)
    for epoch in range(5):
        losses = [exe.run(compiled, feed=batch, fetch_list=[loss.name])[0][0] for batch in loader()]
        if fleet.is_first_worker():
            print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
    fleet.stop_worker()
