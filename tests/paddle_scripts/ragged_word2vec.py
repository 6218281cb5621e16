# falls: epoch \d+: loss (\d+\.\d+)
"""Skip-gram turned round (CBOW): a context of any number of words predicts the word, from DataLoader.from_generator."""

import numpy as np
import paddle
import paddle.fluid as fluid

paddle.enable_static()
VOCABULARY, WIDTH = 40, 12

context = paddle.static.data("context", [None, 1], "int64", lod_level=1)
target = paddle.static.data("target", [None, 1], "int64")
negative = paddle.static.data("negative", [None, 4], "int64")
words = fluid.layers.embedding(context, [VOCABULARY, WIDTH], param_attr="input_words")
centre = paddle.static.nn.sequence_pool(words, "average")
candidates = paddle.concat([target, negative], axis=1)
rows = paddle.static.nn.embedding(candidates, [VOCABULARY, WIDTH], param_attr="output_words")
scores = paddle.squeeze(paddle.matmul(rows, paddle.unsqueeze(centre, 2)), 2)
ones = paddle.ones_like(paddle.cast(target, "float32"))
labels = paddle.concat([ones, paddle.zeros_like(paddle.cast(negative, "float32"))], axis=1)
loss = paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(scores, labels))
paddle.optimizer.Adam(learning_rate=0.05).minimize(loss)

rng = np.random.RandomState(0)


def samples():
    for _ in range(20):
        batch = []
        for _ in range(32):
            word = rng.randint(VOCABULARY)
            near = (word + rng.randint(-2, 3, rng.randint(1, 7))) % VOCABULARY
            batch.append((near.tolist(), [word], rng.randint(0, VOCABULARY, 4)))
        yield batch


loader = paddle.io.DataLoader.from_generator(feed_list=[context, target, negative], capacity=4)
loader.set_sample_list_generator(samples, places=paddle.CPUPlace())
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
for epoch in range(3):
    losses = [exe.run(feed=feed, fetch_list=[loss])[0] for feed in loader()]
    print("epoch %d: loss %.4f" % (epoch, float(np.mean(losses))))
