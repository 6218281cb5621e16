# falls: pass \d+: cost (\d+\.\d+)
"""Stacked LSTM for text classification, in the style of Paddle's book: directions alternate, max pooling."""

import numpy as np
import paddle.fluid as fluid

VOCABULARY, HIDDEN = 30, 16

data = fluid.data(name="words", shape=[None, 1], dtype="int64", lod_level=1)
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
rows = fluid.embedding(input=data, size=[VOCABULARY, 16], is_sparse=True)
rows = fluid.layers.reshape(rows, shape=[-1, 16])
fc1 = fluid.layers.fc(input=rows, size=4 * HIDDEN)
lstm1, cell1 = fluid.layers.dynamic_lstm(input=fc1, size=4 * HIDDEN)
inputs = [fc1, lstm1]
for i in range(2, 4):
    projected = fluid.layers.fc(input=inputs, size=4 * HIDDEN)
    lstm, cell = fluid.layers.dynamic_lstm(input=projected, size=4 * HIDDEN, is_reverse=(i % 2) == 0)
    inputs = [projected, lstm]
fc_last = fluid.layers.sequence_pool(input=inputs[0], pool_type="max")
lstm_last = fluid.layers.sequence_pool(input=inputs[1], pool_type="max")
prediction = fluid.layers.fc(input=[fc_last, lstm_last], size=2, act="softmax")
cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
fluid.optimizer.Adam(learning_rate=0.01).minimize(cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)


def batch():
    """The label is 1 if the word 1 comes before the word 2."""
    samples = []
    for _ in range(32):
        text = rng.randint(3, VOCABULARY, rng.randint(4, 12))
        first, second = sorted(rng.choice(len(text), 2, replace=False))
        kind = rng.randint(2)
        text[first], text[second] = (1, 2) if kind else (2, 1)
        samples.append((text.tolist(), [kind]))
    return samples


feeder = fluid.DataFeeder(feed_list=[data, label], place=place)
for number in range(4):
    costs = [exe.run(feed=feeder.feed(batch()), fetch_list=[cost])[0][0] for _ in range(12)]
    print("pass %d: cost %.4f" % (number, np.mean(costs)))
