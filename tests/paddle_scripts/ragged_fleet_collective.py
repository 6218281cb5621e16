# run: fleetrun --paddle --nproc_per_node=2
# falls: epoch \d+: loss (\d+\.\d+)
# expect: parameters are equal on 2 ranks: True
"""Two ranks, each with sequences of its own lengths and number of rows; a sparse and a dense gradient."""

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import paddle.fluid as fluid

paddle.enable_static()
fleet.init(is_collective=True)
ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
label = fluid.data("label", [None, 1], "float32")
rows = fluid.layers.embedding(ids, [30, 8], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
hidden = fluid.layers.sequence_conv(rows, 8, act="tanh")
score = fluid.layers.fc(fluid.layers.sequence_pool(hidden, "sum"), 1)
loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(score, label))
optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(learning_rate=0.05))
optimizer.minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rank = fleet.worker_index()
rng = np.random.RandomState(rank)
weight = np.random.RandomState(5).randn(30)
for epoch in range(3):
    losses = []
    for _ in range(10):
        texts = [rng.randint(0, 30, rng.randint(0, 4 + 5 * rank)) for _ in range(16)]
        labels = np.array([[float(weight[t].sum() > 0)] for t in texts], "float32")
        words = fluid.create_lod_tensor([t.tolist() for t in texts], [[len(t) for t in texts]], fluid.CPUPlace())
        losses.append(exe.run(feed={"ids": words, "label": labels}, fetch_list=[loss])[0][0])
    if rank == 0:
        print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
table = np.array(fluid.global_scope().find_var("table").get_tensor())
total = fleet.util.all_reduce(table.astype("float64"), "sum")
same = np.allclose(total, fleet.worker_num() * table, atol=1e-6)
print("parameters are equal on %d ranks: %s" % (fleet.worker_num(), same))
