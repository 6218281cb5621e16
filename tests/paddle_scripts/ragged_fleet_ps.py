# run: fleetrun --paddle --server_num=1 --worker_num=2
# expect: worker 0 epoch 2: loss 0\.\d+
# expect: worker 1 fell: True
"""Ragged slots, with the table on a parameter server; each worker has batches of its own lengths."""

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
fleet.init()
ids = paddle.static.data("ids", [None, 1], "int64", lod_level=1)
label = paddle.static.data("label", [None, 1], "float32")
rows = paddle.static.nn.sparse_embedding(ids, [1000, 8], param_attr="table")
pooled = paddle.static.nn.sequence_pool(paddle.squeeze(rows, 1), "sum")
logit = paddle.static.nn.fc(pooled, 1)
loss = paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(logit, label))
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.5), strategy)
optimizer.minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    worker = fleet.worker_index()
    rng = np.random.RandomState(worker)
    weight = np.random.RandomState(9).randn(100)
    first = last = None
    for epoch in range(3):
        losses = []
        for _ in range(12):
            texts = [rng.randint(0, 100, rng.randint(1, 4 + 3 * worker)) for _ in range(16)]
            labels = np.array([[float(weight[t].sum() > 0)] for t in texts], "float32")
            fed = paddle.fluid.create_lod_tensor([t.tolist() for t in texts], [[len(t) for t in texts]], None)
            losses.append(float(exe.run(feed={"ids": fed, "label": labels}, fetch_list=[loss])[0]))
        last = np.mean(losses)
        first = last if first is None else first
        print("worker %d epoch %d: loss %.4f" % (worker, epoch, last))
    print("worker %d fell: %s" % (worker, last < first))
    fleet.stop_worker()
