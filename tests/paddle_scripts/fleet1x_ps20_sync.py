# run: fleetrun --paddle --server_num=2 --worker_num=2
# expect: workers \['127.0.0.1:\d+', '127.0.0.1:\d+'\]
# falls: step \d+: loss (\d+\.\d+)
"""The parameter servers of fleet 2.0, synchronous: strategy.a_sync = False."""

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
from paddle.distributed.fleet.base import role_maker

paddle.enable_static()
fleet.init(role_maker.PaddleCloudRoleMaker())
x = paddle.static.data(name="x", shape=[None, 8], dtype="float32")
y = paddle.static.data(name="y", shape=[None, 1], dtype="float32")
hidden = paddle.static.nn.fc(x, 16, activation="tanh")
loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(hidden, 1), y))

strategy = fleet.DistributedStrategy()
strategy.a_sync = False
optimizer = paddle.optimizer.Adam(learning_rate=0.05)
optimizer = fleet.distributed_optimizer(optimizer, strategy)
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    if fleet.is_first_worker():
        print("workers", fleet.worker_endpoints())
    rng = np.random.RandomState(fleet.worker_index())
    for step in range(21):
        batch = rng.randn(16, 8).astype("float32")
        feed = {"x": batch, "y": 0.5 * batch.sum(axis=1, keepdims=True)}
        (value,) = exe.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
        if step % 10 == 0 and fleet.is_first_worker():
            print("step %d: loss %.4f" % (step, value))
    if fleet.is_first_worker():
        fleet.save_persistables(exe, "./model")
    fleet.stop_worker()
