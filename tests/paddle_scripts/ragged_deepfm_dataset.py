# falls: loss: \[(\d+\.\d+)
# expect: lengths differ: True
"""DeepFM over slots of any number of ids, read by a QueueDataset from files."""

import numpy as np
import paddle.fluid as fluid

VOCABULARY, FIELDS, WIDTH = 50, 3, 4

slots = [fluid.data(name="slot%d" % i, shape=[None, 1], dtype="int64", lod_level=1) for i in range(FIELDS)]
label = fluid.data(name="label", shape=[None, 1], dtype="float32")


def pooled(ids, width, name):
    rows = fluid.layers.embedding(ids, [VOCABULARY, width], is_sparse=True, param_attr=fluid.ParamAttr(name=name))
    return fluid.layers.sequence_pool(rows, "sum")


first_order = fluid.layers.sums([pooled(ids, 1, "first") for ids in slots])
vectors = [pooled(ids, WIDTH, "second") for ids in slots]
total = fluid.layers.sums(vectors)
squares = fluid.layers.sums([fluid.layers.square(v) for v in vectors])
second_order = 0.5 * fluid.layers.reduce_sum(fluid.layers.square(total) - squares, dim=1, keep_dim=True)
deep = fluid.layers.concat(vectors, axis=1)
deep = fluid.layers.fc(fluid.layers.fc(deep, 16, act="relu"), 1)
logit = first_order + second_order + deep
loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(logit, label))
fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)

rng = np.random.RandomState(0)
weight = rng.randn(VOCABULARY)
counts = set()
for part in range(2):
    with open("part-%d" % part, "w") as file:
        for _ in range(320):
            values = [rng.randint(0, VOCABULARY, rng.randint(1, 6)) for _ in range(FIELDS)]
            counts.update(len(v) for v in values)
            score = sum(weight[v].sum() for v in values)
            text = " ".join("%d %s" % (len(v), " ".join(map(str, v))) for v in values)
            file.write("%s 1 %d\n" % (text, int(score > 0)))
print("lengths differ:", len(counts) > 1)

dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
dataset.set_use_var(slots + [label])
dataset.set_batch_size(32)
dataset.set_filelist(["part-0", "part-1"])
dataset.set_pipe_command("cat")
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
for epoch in range(3):
    exe.train_from_dataset(
        fluid.default_main_program(), dataset, fetch_list=[loss], fetch_info=["loss"], print_period=20
    )
