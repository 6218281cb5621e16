# run: fleetrun --paddle --server_num=1 --worker_num=2
# expect: inference model: \['__model__', '__params__'\]
# falls: step \d+: loss (\d+\.\d+)
"""The parameter servers of fleet 2.0, asynchronous: strategy.a_sync = True, a table of embeddings on the servers."""

import os

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
fleet.init(is_collective=False)
words = paddle.static.data(name="words", shape=[None, 4], dtype="int64")
label = paddle.static.data(name="label", shape=[None, 1], dtype="int64")
rows = paddle.static.nn.sparse_embedding(
    words, size=[500, 8], param_attr=paddle.ParamAttr(name="words_table", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1))
)
hidden = paddle.static.nn.fc(paddle.sum(rows, axis=1), 16, activation="relu")
logits = paddle.static.nn.fc(hidden, 2)
loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))

strategy = fleet.DistributedStrategy()
strategy.a_sync = True
optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(learning_rate=0.05), strategy)
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    rng = np.random.RandomState(fleet.worker_index())
    for step in range(41):
        batch = rng.randint(0, 50, (24, 4)).astype("int64")
        labels = (batch.mean(axis=1, keepdims=True) > 25).astype("int64")
        (value,) = exe.run(feed={"words": batch, "label": labels}, fetch_list=[loss])
        if step % 20 == 0 and fleet.is_first_worker():
            print("step %d: loss %.4f" % (step, value))
    if fleet.is_first_worker():
        fleet.save_inference_model(exe, "./inference", ["words"], [logits])
        print("inference model: %s" % sorted(os.listdir("./inference")))
    fleet.stop_worker()
