# expect: case 0 -> 1.0 case 1 -> 4.0 case 2 -> 9.0
# expect: switch 0 -> -1.0 switch 1 -> -4.0 switch 5 -> -9.0
# falls: loss (\d+\.\d+)
"""case and switch_case choose an activation while the program runs."""

import numpy as np
import paddle.fluid as fluid

index = fluid.data("index", [1], "int32")
x = fluid.data("x", [None, 4], "float32")
label = fluid.data("label", [None, 1], "float32")


def constant(number, dtype="int32"):
    return fluid.layers.fill_constant([1], dtype, number)


chosen = fluid.layers.case(
    pred_fn_pairs=[
        (fluid.layers.less_than(index, constant(1)), lambda: constant(1.0, "float32")),
        (fluid.layers.less_than(index, constant(2)), lambda: constant(4.0, "float32")),
    ],
    default=lambda: constant(9.0, "float32"),
)
switched = fluid.layers.switch_case(
    branch_index=index,
    branch_fns={0: lambda: constant(-1.0, "float32"), 1: lambda: constant(-4.0, "float32")},
    default=lambda: constant(-9.0, "float32"),
)
hidden = fluid.layers.fc(x, 8)
activated = fluid.layers.switch_case(
    index,
    [lambda: fluid.layers.relu(hidden), lambda: fluid.layers.tanh(hidden), lambda: fluid.layers.sigmoid(hidden)],
)
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(activated, 1), label))
fluid.optimizer.Adam(0.02).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(1)
test = fluid.default_main_program()
batch = rng.randn(16, 4).astype("float32")
target = batch.sum(1, keepdims=True)


def run(number, *fetches):
    feed = {"index": np.array([number], "int32"), "x": batch, "label": target}
    return exe.run(test, feed=feed, fetch_list=list(fetches))


print(" ".join("case %d -> %.1f" % (k, run(k, chosen)[0][0]) for k in (0, 1, 2)))
print(" ".join("switch %d -> %.1f" % (k, run(k, switched)[0][0]) for k in (0, 1, 5)))
for step in range(60):
    (value,) = run(step % 3, loss)
    if step % 3 == 0:
        print("step %d: loss %.4f" % (step, value[0]))
