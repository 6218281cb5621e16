# falls: pass \d+: cost (\d+\.\d+)
# expect: pass 2: cost .* accuracy (0\.[6-9]|1\.0)
"""Sentiment of padded imdb reviews: embeddings, a masked mean, fluid.io.DataLoader.from_generator."""

import numpy as np
import paddle
import paddle.fluid as fluid

LENGTH, BATCH = 48, 50
word_dict = paddle.dataset.imdb.word_dict()
pad = len(word_dict)


def padded(reader):
    def read():
        for words, label in reader():
            words = words[:LENGTH]
            yield np.array(words + [pad] * (LENGTH - len(words))), np.array([label])

    return read


words = fluid.data(name="words", shape=[None, LENGTH], dtype="int64")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
vectors = fluid.embedding(words, size=[pad + 1, 16], padding_idx=pad)
mask = fluid.layers.cast(fluid.layers.not_equal(words, fluid.layers.fill_constant([1], "int64", pad)), "float32")
total = fluid.layers.reduce_sum(vectors, dim=1)
mean = total / fluid.layers.reduce_sum(mask, dim=1, keep_dim=True)
prediction = fluid.layers.fc(input=mean, size=2, act="softmax")
cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
accuracy = fluid.layers.accuracy(input=prediction, label=label)
fluid.optimizer.Adam(learning_rate=0.02).minimize(cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
loader = fluid.io.DataLoader.from_generator(feed_list=[words, label], capacity=4, iterable=True)
train = paddle.reader.shuffle(paddle.reader.buffered(padded(paddle.dataset.imdb.train(word_dict)), 100), 1000)
loader.set_sample_generator(train, batch_size=BATCH, places=fluid.cpu_places(1))
for pass_id in range(3):
    fetched = [exe.run(feed=data, fetch_list=[cost, accuracy]) for data in loader()]
    costs, accuracies = zip(*fetched)
    print("pass %d: cost %.4f, accuracy %.3f" % (pass_id, np.mean(costs), np.mean(accuracies)))
