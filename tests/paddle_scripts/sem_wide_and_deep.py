# falls: epoch \d+ train: loss (\d+\.\d+)
# expect: epoch 2 test: loss \d+\.\d+, auc 0\.[789]\d+
"""Wide and deep with DataLoader.from_generator; the test phase runs a clone, which shares the loader."""

import numpy as np
import paddle
import paddle.fluid as fluid

DENSE, SLOTS, IDS = 6, 4, 50


def make_reader(seed, count):
    table = np.random.RandomState(5).randn(SLOTS, IDS)

    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            dense = rng.rand(DENSE).astype("float32")
            ids = rng.randint(0, IDS, SLOTS)
            score = table[np.arange(SLOTS), ids].sum() + dense.sum() - DENSE / 2
            yield [dense] + [np.array([i], "int64") for i in ids] + [np.array([int(score > 0)], "int64")]

    return reader


def wide_and_deep(dense, sparse):
    wide = fluid.layers.fc(input=dense, size=1)
    rows = [
        fluid.embedding(
            input=ids,
            size=[IDS, 8],
            is_sparse=True,
            param_attr=fluid.ParamAttr(name="deep_%d" % slot, initializer=fluid.initializer.Uniform(-0.1, 0.1)),
        )
        for slot, ids in enumerate(sparse)
    ]
    deep = fluid.layers.concat([fluid.layers.reshape(row, [-1, 8]) for row in rows] + [dense], axis=1)
    for size in (32, 16):
        deep = fluid.layers.fc(
            input=deep, size=size, act="relu", param_attr=fluid.initializer.Normal(scale=1.0 / np.sqrt(size))
        )
    return fluid.layers.sigmoid(wide + fluid.layers.fc(input=deep, size=1))


fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
dense = fluid.data(name="dense", shape=[None, DENSE], dtype="float32")
sparse = [fluid.data(name="C%d" % slot, shape=[None, 1], dtype="int64") for slot in range(SLOTS)]
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
loader = fluid.io.DataLoader.from_generator(feed_list=[dense] + sparse + [label], capacity=16, iterable=False)

predict = wide_and_deep(dense, sparse)
loss = fluid.layers.mean(fluid.layers.log_loss(predict, fluid.layers.cast(label, "float32")))
two_sided = fluid.layers.concat([1 - predict, predict], axis=1)
auc, _, _ = fluid.layers.auc(input=two_sided, label=label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())


def run_epoch(program, reader):
    loader.set_sample_generator(reader, batch_size=64, drop_last=True, places=fluid.cpu_places())
    loader.start()
    losses, area = [], None
    try:
        while True:
            value, area = exe.run(program=program, fetch_list=[loss.name, auc.name])
            losses.append(value)
    except fluid.core.EOFException:
        loader.reset()
    return np.mean(losses), np.mean(area)


for epoch in range(3):
    print("epoch %d train: loss %.4f, auc %.3f" % ((epoch,) + run_epoch(fluid.default_main_program(), make_reader(1, 1024))))
    print("epoch %d test: loss %.4f, auc %.3f" % ((epoch,) + run_epoch(test_program, make_reader(2, 256))))
