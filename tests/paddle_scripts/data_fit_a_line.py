# falls: pass \d+: train cost (\d+\.\d+)
# falls: pass \d+: test cost (\d+\.\d+)
"""Fit a line to uci_housing with readers, a DataFeeder and a test program, in the style of Paddle 1.x."""

import numpy as np
import paddle
import paddle.fluid as fluid

train_reader = fluid.io.batch(fluid.io.shuffle(paddle.dataset.uci_housing.train(), buf_size=500), batch_size=20)
test_reader = fluid.io.batch(paddle.dataset.uci_housing.test(), batch_size=20)

x = fluid.data(name="x", shape=[None, 13], dtype="float32")
y = fluid.data(name="y", shape=[None, 1], dtype="float32")
predicted = fluid.layers.fc(input=x, size=1, act=None)
avg_cost = fluid.layers.mean(fluid.layers.square_error_cost(input=predicted, label=y))
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.SGD(learning_rate=0.05).minimize(avg_cost)

exe = fluid.Executor(fluid.CPUPlace())
feeder = fluid.DataFeeder(place=fluid.CPUPlace(), feed_list=[x, y])
exe.run(fluid.default_startup_program())


def mean_cost(program, reader):
    return np.mean([exe.run(program, feed=feeder.feed(data), fetch_list=[avg_cost])[0] for data in reader()])


for pass_id in range(8):
    print("pass %d: train cost %.4f" % (pass_id, mean_cost(fluid.default_main_program(), train_reader)))
    print("pass %d: test cost %.4f" % (pass_id, mean_cost(test_program, test_reader)))
