# falls: pass \d+: cost (\d+\.\d+)
# expect: test accuracy 0\.[89]|test accuracy 1
"""Sentiment classification of 1.x: embedding, two sequence_conv_pool, softmax; tested on a clone."""

import numpy as np
import paddle.fluid as fluid

VOCABULARY = 60


def network():
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    rows = fluid.layers.embedding(input=words, size=[VOCABULARY, 16])
    three = fluid.nets.sequence_conv_pool(input=rows, num_filters=16, filter_size=3, act="tanh", pool_type="sqrt")
    four = fluid.nets.sequence_conv_pool(input=rows, num_filters=16, filter_size=4, act="tanh", pool_type="max")
    prediction = fluid.layers.fc(input=[three, four], size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    accuracy = fluid.layers.accuracy(input=prediction, label=label)
    return words, label, cost, accuracy


words, label, cost, accuracy = network()
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adagrad(learning_rate=0.1).minimize(cost)


def reader(seed, count):
    def samples():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            kind = rng.randint(2)
            text = rng.randint(0, VOCABULARY, rng.randint(3, 15))
            text[rng.randint(len(text) - 1)] = kind  # one word decides
            text[text < 2] = kind
            yield text.tolist(), kind

    return samples


place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(feed_list=["words", "label"], place=place)
train_reader = fluid.io.batch(fluid.io.shuffle(reader(0, 512), buf_size=512), batch_size=32)
for number in range(4):
    costs = [exe.run(feed=feeder.feed(data), fetch_list=[cost])[0][0] for data in train_reader()]
    print("pass %d: cost %.4f" % (number, np.mean(costs)))
results = [
    exe.run(test_program, feed=feeder.feed(data), fetch_list=[accuracy])[0]
    for data in fluid.io.batch(reader(1, 128), batch_size=64)()
]
print("test accuracy %.2f" % np.mean(results))
