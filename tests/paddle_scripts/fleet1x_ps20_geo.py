# run: fleetrun --paddle --server_num=1 --worker_num=2
# expect: geo: every 4 steps
# falls: step \d+: loss (\d+\.\d+)
"""The parameter servers of fleet 2.0 with Geo-SGD: strategy.a_sync = True and a_sync_configs k_steps."""

import os

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
workers = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
is_server = os.environ["TRAINING_ROLE"] == "PSERVER"
role = fleet.UserDefinedRoleMaker(
    is_collective=False,
    init_gloo=False,
    current_id=0 if is_server else int(os.environ["PADDLE_TRAINER_ID"]),
    role=fleet.Role.SERVER if is_server else fleet.Role.WORKER,
    worker_endpoints=workers,
    server_endpoints=servers,
)
fleet.init(role)
ids = paddle.static.data(name="ids", shape=[None, 1], dtype="int64")
target = paddle.static.data(name="target", shape=[None, 1], dtype="float32")
row = paddle.static.nn.embedding(ids, size=[64, 4], is_sparse=True)
score = paddle.static.nn.fc(paddle.reshape(row, [-1, 4]), 1)
loss = paddle.mean(paddle.nn.functional.square_error_cost(score, target))

strategy = fleet.DistributedStrategy()
strategy.a_sync = True
strategy.a_sync_configs = {"k_steps": 4}
print("geo: every %d steps" % strategy.a_sync_configs["k_steps"])
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(learning_rate=0.2), strategy)
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
elif fleet.is_worker():
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    rng = np.random.RandomState(fleet.worker_index())
    for step in range(61):
        batch = rng.randint(0, 64, (32, 1)).astype("int64")
        feed = {"ids": batch, "target": (batch % 4).astype("float32")}
        (value,) = exe.run(feed=feed, fetch_list=[loss])
        if step % 20 == 0 and fleet.worker_index() == 0:
            print("step %d: loss %.4f" % (step, value))
    fleet.barrier_worker()
    fleet.stop_worker()
