# falls: step \d+: loss (\d+\.\d+)
"""A language model with StaticRNN, as in the documentation of 1.x: the next word of a counting sequence."""

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers

VOCABULARY, HIDDEN, LENGTH = 12, 24, 5

words = fluid.data("words", [LENGTH, None, 1], "int64")
targets = fluid.data("targets", [LENGTH, None, 1], "int64")
embedded = layers.reshape(layers.embedding(words, size=[VOCABULARY, 16]), [LENGTH, -1, 16])

rnn = layers.StaticRNN()
with rnn.step():
    word = rnn.step_input(embedded)
    previous = rnn.memory(shape=[-1, HIDDEN], batch_ref=word)
    hidden = layers.fc(input=[word, previous], size=HIDDEN, act="tanh")
    rnn.update_memory(previous, hidden)
    rnn.step_output(hidden)
states = rnn()

scores = layers.fc(states, VOCABULARY, num_flatten_dims=2, act="softmax")
flat = layers.reshape(scores, [-1, VOCABULARY])
loss = layers.mean(layers.cross_entropy(flat, layers.reshape(targets, [-1, 1])))
fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)
for step in range(40):
    first = rng.randint(0, VOCABULARY, (1, 16, 1))
    sequence = (first + np.arange(LENGTH + 1).reshape(-1, 1, 1)) % VOCABULARY
    feed = {"words": sequence[:-1].astype("int64"), "targets": sequence[1:].astype("int64")}
    (value,) = exe.run(feed=feed, fetch_list=[loss])
    if step % 13 == 0:
        print("step %d: loss %.4f" % (step, value[0]))
