# run: fleetrun --paddle --nproc_per_node=2
# expect: mean of the losses over 2 ranks: \d+\.\d+
# expect: largest rank 1, smallest product 0\.0
"""Collectives of paddle.distributed in a static program: the metrics of all ranks."""

import numpy as np
import paddle
import paddle.distributed as dist

paddle.enable_static()
dist.init_parallel_env()
rank, size = dist.get_rank(), dist.get_world_size()

x = paddle.static.data("x", [None, 4], "float32")
number = paddle.static.data("number", [1], "float32")
loss = paddle.mean(paddle.static.nn.fc(x, 1) ** 2)
total = paddle.scale(loss, scale=1.0)
dist.all_reduce(total)
largest, product = paddle.scale(number, 1.0), paddle.scale(number, 1.0)
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
dist.all_reduce(product, op=dist.ReduceOp.PROD)
parts = []
dist.all_gather(parts, loss)
dist.barrier()

exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
feed = {"x": np.full((2, 4), rank + 1.0, "float32"), "number": np.array([rank], "float32")}
values = exe.run(feed=feed, fetch_list=[total, largest, product] + parts)
np.testing.assert_allclose(values[0], values[3] + values[4], rtol=1e-5)
if rank == 0:
    print("mean of the losses over %d ranks: %.4f" % (size, values[0][0] / size))
    print("largest rank %d, smallest product %.1f" % (values[1][0], values[2][0]))
