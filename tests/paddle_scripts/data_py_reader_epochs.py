# falls: epoch \d+: loss (\d+\.\d+)
# expect: test accuracy 0\.[5-9]
# suite: fast
"""A py_reader with a double buffer in a training and a test program; EOFException ends each epoch."""

import numpy as np
import paddle.fluid as fluid


def samples(seed, count):
    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(0, 4)
            image = rng.randn(16).astype("float32")
            image[label * 4 : label * 4 + 4] += 1.5
            yield image, [label]

    return reader


def network(is_train):
    reader = fluid.layers.py_reader(
        capacity=16,
        shapes=[(-1, 16), (-1, 1)],
        dtypes=["float32", "int64"],
        name="train_reader" if is_train else "test_reader",
        use_double_buffer=True,
    )
    reader = fluid.layers.double_buffer(reader)
    image, label = fluid.layers.read_file(reader)
    hidden = fluid.layers.fc(input=image, size=32, act="relu")
    prediction = fluid.layers.fc(input=hidden, size=4, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    return loss, fluid.layers.accuracy(input=prediction, label=label), reader


main, startup, test = fluid.Program(), fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    with fluid.unique_name.guard():
        train_loss, _, train_reader = network(True)
        fluid.optimizer.Adam(learning_rate=0.01).minimize(train_loss)
with fluid.program_guard(test, startup):
    with fluid.unique_name.guard():
        _, test_accuracy, test_reader = network(False)

train_reader.decorate_paddle_reader(fluid.io.batch(fluid.io.shuffle(samples(1, 256), buf_size=64), batch_size=32))
test_reader.decorate_paddle_reader(fluid.io.batch(samples(2, 128), batch_size=32))

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)
for epoch in range(4):
    train_reader.start()
    try:
        while True:
            (value,) = exe.run(program=main, fetch_list=[train_loss.name])
    except fluid.core.EOFException:
        train_reader.reset()
    print("epoch %d: loss %.4f" % (epoch, value[0]))

accuracies = []
test_reader.start()
try:
    while True:
        accuracies.append(exe.run(program=test, fetch_list=[test_accuracy.name])[0])
except fluid.core.EOFException:
    test_reader.reset()
print("test accuracy %.3f of %d batches" % (np.mean(accuracies), len(accuracies)))
