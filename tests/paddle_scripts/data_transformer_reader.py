# falls: epoch \d+: loss (\d+\.\d+)
"""A small translation model with self-attention over wmt16, fed by create_py_reader_by_data in the style of 1.x."""

import numpy as np
import paddle
import paddle.fluid as fluid

SIZE, LENGTH, WIDTH, BATCH = 60, 10, 32, 50

source = fluid.data(name="source", shape=[None, LENGTH], dtype="int64")
position = fluid.data(name="position", shape=[None, LENGTH], dtype="int64")
target = fluid.data(name="target", shape=[None, LENGTH, 1], dtype="int64")
weight = fluid.data(name="weight", shape=[None, LENGTH, 1], dtype="float32")
reader = fluid.layers.create_py_reader_by_data(
    capacity=8, feed_list=[source, position, target, weight], use_double_buffer=True
)

embedded = fluid.embedding(source, size=[SIZE, WIDTH]) + fluid.embedding(position, size=[LENGTH, WIDTH])


def attention(x):
    query, key, value = [fluid.layers.fc(x, size=WIDTH, num_flatten_dims=2, bias_attr=False) for _ in range(3)]
    scores = fluid.layers.matmul(query, key, transpose_y=True, alpha=WIDTH**-0.5)
    return fluid.layers.matmul(fluid.layers.softmax(scores), value)


hidden = fluid.layers.layer_norm(embedded + attention(embedded), begin_norm_axis=2)
inner = fluid.layers.fc(hidden, size=2 * WIDTH, num_flatten_dims=2, act="relu")
hidden = fluid.layers.layer_norm(hidden + fluid.layers.fc(inner, size=WIDTH, num_flatten_dims=2), begin_norm_axis=2)
logits = fluid.layers.fc(hidden, size=SIZE, num_flatten_dims=2)
cost = fluid.layers.softmax_with_cross_entropy(logits=logits, label=target)
loss = fluid.layers.reduce_sum(cost * weight) / fluid.layers.reduce_sum(weight)
fluid.optimizer.Adam(learning_rate=fluid.layers.noam_decay(WIDTH, 20, learning_rate=0.5)).minimize(loss)


def padded(ids):
    return (ids + [0] * LENGTH)[:LENGTH]


def samples():
    for src, _, trg_next in paddle.dataset.wmt16.train(SIZE, SIZE)():
        ids, labels = src[1:], trg_next
        used = [1.0] * len(labels) + [0.0] * LENGTH
        yield padded(ids), list(range(LENGTH)), padded(labels), used[:LENGTH]


reader.decorate_sample_list_generator(paddle.batch(samples, BATCH))
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
for epoch in range(4):
    reader.start()
    losses = []
    try:
        while True:
            losses.append(exe.run(compiled, fetch_list=[loss.name])[0])
    except fluid.core.EOFException:
        reader.reset()
    print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
