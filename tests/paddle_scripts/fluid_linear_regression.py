# falls: step \d+: loss (\d+\.\d+)
# suite: fast
"""Linear regression in the style of Paddle 1.x."""

import numpy as np
import paddle.fluid as fluid

x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
prediction = fluid.layers.fc(input=x, size=1, act=None)
loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)
weight = rng.randn(13, 1).astype("float32")
for step in range(20):
    batch = rng.randn(32, 13).astype("float32")
    (value,) = exe.run(feed={"x": batch, "y": batch.dot(weight)}, fetch_list=[loss])
    print("step %d: loss %.4f" % (step, value[0]))
