# falls: step \d+: loss (\d+\.\d+)
# suite: fast
"""A network whose last layer depends on the batch: large inputs and small inputs have a head of their own."""

import numpy as np
import paddle
import paddle.static as static

paddle.enable_static()
paddle.seed(1)

x = static.data("x", [None, 8], "float32")
y = static.data("y", [None, 1], "float32")
hidden = static.nn.fc(x, 16, activation="tanh")
is_large = paddle.mean(paddle.abs(x)) > paddle.full([1], 1.0, "float32")


def head_for_large():
    return static.nn.fc(hidden, 1) * 2.0


def head_for_small():
    return static.nn.fc(hidden, 1)


prediction = static.nn.cond(is_large, head_for_large, head_for_small)
loss = paddle.mean(paddle.nn.functional.square_error_cost(prediction, y))
paddle.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = static.Executor()
exe.run(static.default_startup_program())
rng = np.random.RandomState(0)
weight = rng.randn(8, 1).astype("float32")
average = None
for step in range(60):
    size = 2.0 if step % 2 else 0.5
    batch = (rng.randn(32, 8) * size).astype("float32")
    (value,) = exe.run(feed={"x": batch, "y": np.tanh(batch.dot(weight))}, fetch_list=[loss])
    value = float(np.asarray(value).reshape(-1)[0])
    average = value if average is None else 0.9 * average + 0.1 * value
    if step % 10 == 0:
        print("step %d: loss %.4f" % (step, average))
