# expect: rates 0.0000 0.0250 0.0500 0.0750 0.1000 0.1000 0.0100 0.0100
# falls: loss (\d+\.\d+)
"""A learning rate with warm-up and a drop, computed in the program by Switch, as scripts for 1.x do."""

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers


def warmed_up_rate(base, warmup_steps, drop_at):
    rate = layers.create_global_var(
        shape=[1], value=0.0, dtype="float32", persistable=True, name="learning_rate"
    )
    step = layers.learning_rate_scheduler._decay_step_counter()
    warmup = layers.fill_constant([1], "float32", float(warmup_steps))
    drop = layers.fill_constant([1], "float32", float(drop_at))
    with layers.Switch() as switch:
        with switch.case(step < warmup):
            layers.assign(step / warmup * base, output=rate)
        with switch.case(step < drop):
            layers.assign(layers.fill_constant([1], "float32", base), output=rate)
        with switch.default():
            layers.assign(np.array([base * 0.1], dtype="float32"), output=rate)
    return rate


x = layers.data(name="x", shape=[6], dtype="float32")
y = layers.data(name="y", shape=[1], dtype="float32")
loss = layers.mean(layers.square_error_cost(input=layers.fc(input=x, size=1), label=y))
rate = warmed_up_rate(0.1, 4, 6)
fluid.optimizer.SGD(learning_rate=rate).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)
weight = rng.randn(6, 1).astype("float32")
rates = []
for step in range(8):
    batch = rng.randn(64, 6).astype("float32")
    value, used = exe.run(feed={"x": batch, "y": batch.dot(weight)}, fetch_list=[loss, rate])
    rates.append("%.4f" % used[0])
    print("step %d: loss %.4f" % (step, value[0]))
print("rates " + " ".join(rates))
