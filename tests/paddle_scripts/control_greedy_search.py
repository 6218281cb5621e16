# expect: decoded 0: 3 4 5 6 7 8
# expect: decoded 1: 7 8 9 0 1 2
# falls: loss (\d+\.\d+)
"""A next-word model and its decoder: greedy search in a While with arrays, in the style of 1.x."""

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers

WORDS, LENGTH = 10, 6


def next_scores(word):
    embedded = layers.embedding(word, size=[WORDS, 16], param_attr="embedding")
    hidden = layers.fc(embedded, 32, act="tanh", param_attr="w1", bias_attr="b1")
    return layers.fc(hidden, WORDS, act="softmax", param_attr="w2", bias_attr="b2")


train, decode, startup = fluid.Program(), fluid.Program(), fluid.Program()
with fluid.program_guard(train, startup):
    word = layers.data("word", [1], dtype="int64")
    following = layers.data("following", [1], dtype="int64")
    loss = layers.mean(layers.cross_entropy(next_scores(word), following))
    fluid.optimizer.Adam(0.05).minimize(loss)

with fluid.program_guard(decode, fluid.Program()):
    first = layers.data("first", [1], dtype="int64")
    counter = layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", LENGTH)
    words = layers.array_write(first, counter)
    going = layers.less_than(counter, limit)
    loop = layers.While(going)
    with loop.block():
        current = layers.array_read(words, counter)
        best = layers.reshape(layers.argmax(next_scores(current), axis=-1), [-1, 1])
        layers.increment(counter, value=1, in_place=True)
        layers.array_write(best, counter, array=words)
        layers.less_than(counter, limit, cond=going)
    decoded = [layers.array_read(words, layers.fill_constant([1], "int64", k + 1)) for k in range(LENGTH)]

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)
rng = np.random.RandomState(0)
for step in range(60):
    batch = rng.randint(0, WORDS, (32, 1)).astype("int64")
    (value,) = exe.run(train, feed={"word": batch, "following": (batch + 1) % WORDS}, fetch_list=[loss])
    if step % 20 == 0:
        print("step %d: loss %.4f" % (step, value[0]))
steps = exe.run(decode, feed={"first": np.array([[2], [6]], "int64")}, fetch_list=decoded)
for row in range(2):
    print("decoded %d: %s" % (row, " ".join(str(int(ids[row][0])) for ids in steps)))
