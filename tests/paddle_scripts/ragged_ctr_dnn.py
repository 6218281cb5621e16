# falls: epoch \d+: loss (\d+\.\d+)
# expect: auc 0\.[6-9]
# suite: fast
"""CTR-DNN of Paddle 1.x: dense features, sparse slots of any number of ids, sum pooling."""

import numpy as np
import paddle.fluid as fluid

SLOTS, VOCABULARY, WIDTH = 4, 100, 8

dense = fluid.layers.data(name="dense_input", shape=[3], dtype="float32")
sparse = [
    fluid.layers.data(name="C%d" % i, shape=[1], lod_level=1, dtype="int64") for i in range(1, SLOTS + 1)
]
label = fluid.layers.data(name="label", shape=[1], dtype="int64")


def look_up(ids):
    rows = fluid.layers.embedding(
        input=ids,
        is_sparse=True,
        size=[VOCABULARY, WIDTH],
        param_attr=fluid.ParamAttr(name="SparseFeatFactors", initializer=fluid.initializer.Uniform()),
    )
    return fluid.layers.sequence_pool(input=rows, pool_type="sum")


inputs = fluid.layers.concat([look_up(ids) for ids in sparse] + [dense], axis=1)
hidden = fluid.layers.fc(input=inputs, size=32, act="relu")
hidden = fluid.layers.fc(input=hidden, size=16, act="relu")
prediction = fluid.layers.fc(input=hidden, size=2, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
auc, _, _ = fluid.layers.auc(input=prediction, label=label, num_thresholds=2**10)
fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)


def samples(seed):
    rng = np.random.RandomState(seed)
    weight = np.random.RandomState(7).randn(VOCABULARY)
    for _ in range(640):
        slots = [rng.randint(0, VOCABULARY, rng.randint(0, 6)).tolist() for _ in range(SLOTS)]
        score = sum(weight[i] for slot in slots for i in slot)
        yield (rng.rand(3).astype("float32"), *slots, int(score > 0))


def reader():
    batch = []
    for sample in samples(0):
        batch.append(sample)
        if len(batch) == 64:
            yield batch
            batch = []


exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(feed_list=[dense] + sparse + [label], place=fluid.CPUPlace())
for epoch in range(5):
    losses = []
    for batch in reader():
        loss_value, auc_value = exe.run(feed=feeder.feed(batch), fetch_list=[loss, auc])
        losses.append(loss_value[0])
    print("epoch %d: loss %.4f auc %.3f" % (epoch, np.mean(losses), auc_value[0]))
