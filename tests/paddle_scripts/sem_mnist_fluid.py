# falls: pass \d+, batch \d+: cost (\d+\.\d+)
# expect: test: accuracy 0\.\d+
"""Recognize digits in the style of Paddle 1.x: nets, DataFeeder, a test program, an inference model."""

import os

import numpy as np
import paddle
import paddle.fluid as fluid

BATCH_SIZE = 32


def convolutional_neural_network(img):
    conv_pool_1 = fluid.nets.simple_img_conv_pool(
        input=img, filter_size=5, num_filters=6, pool_size=2, pool_stride=2, act="relu"
    )
    conv_pool_1 = fluid.layers.batch_norm(conv_pool_1)
    conv_pool_2 = fluid.nets.simple_img_conv_pool(
        input=conv_pool_1, filter_size=5, num_filters=8, pool_size=2, pool_stride=2, act="relu"
    )
    return fluid.layers.fc(input=conv_pool_2, size=10, act="softmax")


train_reader = paddle.batch(
    paddle.reader.shuffle(fluid.io.firstn(paddle.dataset.mnist.train(), 640), buf_size=500), batch_size=BATCH_SIZE
)
test_reader = paddle.batch(fluid.io.firstn(paddle.dataset.mnist.test(), 128), batch_size=BATCH_SIZE)

fluid.default_startup_program().random_seed = 90
fluid.default_main_program().random_seed = 90
img = fluid.data(name="img", shape=[None, 1, 28, 28], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
prediction = convolutional_neural_network(img)
cost = fluid.layers.cross_entropy(input=prediction, label=label)
avg_cost = fluid.layers.mean(cost)
acc = fluid.layers.accuracy(input=prediction, label=label)
test_program = fluid.default_main_program().clone(for_test=True)
optimizer = fluid.optimizer.Adam(learning_rate=0.003)
minimized = optimizer.minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
exe.run(fluid.default_startup_program())

for pass_id in range(2):
    for batch_id, data in enumerate(train_reader()):
        metrics = exe.run(
            fluid.default_main_program(), feed=feeder.feed(data), fetch_list=[avg_cost, [acc], minimized]
        )
        if batch_id % 5 == 0:
            print("pass %d, batch %d: cost %.4f" % (pass_id, batch_id, metrics[0][0]))

accuracies = [
    exe.run(test_program, feed=feeder.feed(data), fetch_list=[acc.name, avg_cost.name])[0] for data in test_reader()
]
print("test: accuracy %.3f" % np.mean(accuracies))

fluid.io.save_inference_model("digits.model", ["img"], [prediction], exe, model_filename=None, params_filename=None)
with fluid.scope_guard(fluid.core.Scope()):
    program, feed_names, fetch_targets = fluid.io.load_inference_model("digits.model", exe)
    image = next(paddle.dataset.mnist.test()())[0].reshape(1, 1, 28, 28).astype("float32")
    (result,) = exe.run(program, feed={feed_names[0]: image}, fetch_list=fetch_targets)
    print("inference: %s, %d" % (result.shape, np.argsort(result)[0][-1]))
assert os.path.exists("digits.model")
