# falls: step \d+: loss (\d+\.\d+)
# expect: called \d+ times forward and \d+ times backward
# expect: first row 5.0 5.0 5.0 5.0
# suite: fast
"""Python code in a program: an activation by py_func, Print, and elements that are assigned."""

import numpy as np
import paddle
import paddle.static as static

paddle.enable_static()
paddle.seed(0)
calls = {"forward": 0, "backward": 0}


def soft_clip(x):
    calls["forward"] += 1
    return np.tanh(x)


def soft_clip_grad(y, dy):
    calls["backward"] += 1
    return np.array(dy) * (1 - np.square(np.array(y)))


x = static.data("x", [None, 4], "float32")
y = static.data("y", [None, 1], "float32")
hidden = static.nn.fc(x, 4)
clipped = static.default_main_program().current_block().create_var(name="clipped", dtype="float32", shape=[-1, 4])
static.py_func(soft_clip, hidden, clipped, soft_clip_grad, skip_vars_in_backward_input=hidden)
clipped = static.Print(clipped, first_n=1, message="clipped", summarize=4, print_phase="forward")
marked = clipped * 1.0
marked[0] = 5.0
loss = paddle.mean(paddle.nn.functional.square_error_cost(static.nn.fc(clipped, 1), y))
paddle.optimizer.Adam(learning_rate=0.05).minimize(loss)

exe = static.Executor()
exe.run(static.default_startup_program())
rng = np.random.RandomState(0)
for step in range(30):
    batch = rng.randn(16, 4).astype("float32")
    label = np.tanh(batch.sum(1, keepdims=True))
    value, rows = exe.run(feed={"x": batch, "y": label}, fetch_list=[loss, marked])
    if step % 10 == 0:
        print("step %d: loss %.4f" % (step, float(np.asarray(value).reshape(-1)[0])))
print("called %d times forward and %d times backward" % (calls["forward"], calls["backward"]))
print("first row " + " ".join("%.1f" % number for number in rows[0]))
