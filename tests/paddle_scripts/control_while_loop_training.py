# falls: loss (\d+\.\d+)
# expect: iterations 2 4 6
"""A recurrent network over sequences of any length, trained through while_loop."""

import numpy as np
import paddle
import paddle.static as static

paddle.enable_static()
paddle.seed(3)

sequence = static.data("sequence", [8, None, 4], "float32")
length = static.data("length", [1], "int64")
label = static.data("label", [None, 1], "float32")
w_input = static.create_parameter([4, 12], "float32", name="w_input")
w_hidden = static.create_parameter([12, 12], "float32", name="w_hidden")
start = paddle.matmul(sequence[0], w_input) * 0.0


def more(i, hidden):
    return paddle.less_than(i, length)


def step(i, hidden):
    element = paddle.reshape(paddle.gather(sequence, i), [-1, 4])
    hidden = paddle.tanh(paddle.matmul(element, w_input) + paddle.matmul(hidden, w_hidden))
    return [i + 1, hidden]


count, last = static.nn.while_loop(more, step, [paddle.zeros([1], "int64"), start])
prediction = static.nn.fc(last, 1)
loss = paddle.mean(paddle.nn.functional.square_error_cost(prediction, label))
paddle.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = static.Executor()
exe.run(static.default_startup_program())
rng = np.random.RandomState(0)
for epoch in range(15):
    total, counts = 0.0, []
    for steps in (2, 4, 6):
        data = rng.randn(8, 16, 4).astype("float32")
        feed = {
            "sequence": data,
            "length": np.array([steps], "int64"),
            "label": data[steps - 1].mean(1, keepdims=True) + data[0].mean(1, keepdims=True),
        }
        value, iterations = exe.run(feed=feed, fetch_list=[loss, count])
        total += float(np.asarray(value).reshape(-1)[0])
        counts.append(str(int(np.asarray(iterations).reshape(-1)[0])))
    if epoch % 7 == 0:
        print("epoch %d: loss %.4f" % (epoch, total / 3))
print("iterations " + " ".join(counts))
