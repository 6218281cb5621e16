# run: fleetrun --paddle --server_num=2 --worker_num=2
# expect: server 1 of 2
# expect: inference: shape \(4, 1\)
# falls: epoch \d+: loss (\d+\.\d+)
"""CTR-DNN with Geo-SGD of fleet 1.x; the script reads the role of the process itself."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import StrategyFactory

servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
trainers = int(os.environ["PADDLE_TRAINERS_NUM"])
if os.environ["TRAINING_ROLE"] == "PSERVER":
    endpoint = os.environ["POD_IP"] + ":" + os.environ["PADDLE_PORT"]
    role = UserDefinedRoleMaker(
        current_id=servers.index(endpoint), role=Role.SERVER, worker_num=trainers, server_endpoints=servers
    )
else:
    role = UserDefinedRoleMaker(
        current_id=int(os.environ["PADDLE_TRAINER_ID"]),
        role=Role.WORKER,
        worker_num=trainers,
        server_endpoints=servers,
    )
fleet.init(role)

user = fluid.layers.data(name="user", shape=[1], dtype="int64")
item = fluid.layers.data(name="item", shape=[1], dtype="int64")
rating = fluid.layers.data(name="rating", shape=[1], dtype="float32")
rows = []
for var, name, rows_num in ((user, "user_table", 40), (item, "item_table", 60)):
    row = fluid.layers.embedding(input=var, size=[rows_num, 4], is_sparse=True, param_attr=name)
    rows.append(fluid.layers.reshape(row, [-1, 4]))
hidden = fluid.layers.fc(input=rows, size=16, act="tanh")
score = fluid.layers.fc(input=hidden, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(input=score, label=rating))
strategy = StrategyFactory.create_geo_strategy(update_frequency=5)
fleet.distributed_optimizer(fluid.optimizer.SGD(learning_rate=0.1), strategy).minimize(loss)

if fleet.is_server():
    print("server %d of %d" % (fleet.server_index(), fleet.server_num()))
    fleet.init_server()
    fleet.run_server()
else:
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.init_worker()
    exe.run(fluid.default_startup_program())
    rng = np.random.RandomState(fleet.worker_index())
    for epoch in range(4):
        losses = []
        for _ in range(15):
            users, items = rng.randint(0, 40, (16, 1)), rng.randint(0, 60, (16, 1))
            ratings = (users % 2 + items % 3).astype("float32")
            feed = {"user": users, "item": items, "rating": ratings}
            losses.append(exe.run(fluid.default_main_program(), feed=feed, fetch_list=[loss])[0][0])
        if fleet.worker_index() == 0:
            print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
    fleet.barrier_worker()
    if fleet.is_first_worker():
        fleet.save_inference_model(exe, "model", ["user", "item"], [score])
    fleet.stop_worker()
    if fleet.is_first_worker():
        with fluid.scope_guard(fluid.Scope()):
            program, feeds, targets = fluid.io.load_inference_model("model", exe)
            (value,) = exe.run(program, feed={name: np.arange(4).reshape(4, 1) for name in feeds}, fetch_list=targets)
        print("inference: shape %s" % (value.shape,))
