# falls: batch \d+: loss (\d+\.\d+)
"""SimNet: bags of words of a query, a clicked and another title; cosine similarity; hinge loss."""

import numpy as np
import paddle.fluid as fluid

VOCABULARY = 200

query = fluid.data(name="query", shape=[None, 1], dtype="int64", lod_level=1)
positive = fluid.data(name="positive", shape=[None, 1], dtype="int64", lod_level=1)
negative = fluid.data(name="negative", shape=[None, 1], dtype="int64", lod_level=1)


def tower(words, name):
    rows = fluid.layers.embedding(
        input=words,
        size=[VOCABULARY, 16],
        param_attr=fluid.ParamAttr(name="words", initializer=fluid.initializer.Xavier()),
        is_sparse=True,
    )
    bag = fluid.layers.softsign(fluid.layers.sequence_pool(input=rows, pool_type="sum"))
    return fluid.layers.fc(
        input=bag,
        size=16,
        param_attr=fluid.ParamAttr(name=name + ".w"),
        bias_attr=fluid.ParamAttr(name=name + ".b", initializer=fluid.initializer.Uniform(low=-0.1, high=0.1)),
    )


query_vector = tower(query, "query")
good = fluid.layers.cos_sim(query_vector, tower(positive, "title"))
bad = fluid.layers.cos_sim(query_vector, tower(negative, "title"))
margin = fluid.layers.fill_constant_batch_size_like(input=good, shape=[-1, 1], value=0.3, dtype="float32")
zero = fluid.layers.fill_constant_batch_size_like(input=good, shape=[-1, 1], value=0.0, dtype="float32")
hinge = fluid.layers.elementwise_max(
    zero, fluid.layers.elementwise_add(fluid.layers.elementwise_sub(margin, good), bad)
)
loss = fluid.layers.mean(hinge)
fluid.optimizer.SGD(learning_rate=0.5).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)


def sentence(topic):
    return (rng.randint(0, 20, rng.randint(2, 9)) + topic * 20).tolist()


def batch_of(size):
    topics = rng.randint(0, 10, size)
    others = (topics + rng.randint(1, 10, size)) % 10
    columns = [sentence(t) for t in topics], [sentence(t) for t in topics], [sentence(t) for t in others]
    return {
        name: fluid.create_lod_tensor(words, [[len(w) for w in words]], fluid.CPUPlace())
        for name, words in zip(["query", "positive", "negative"], columns)
    }


total = 0.0
for number in range(60):
    (value,) = exe.run(feed=batch_of(32), fetch_list=[loss])
    total += value[0]
    if number % 20 == 19:
        print("batch %d: loss %.4f" % (number, total / 20))
        total = 0.0
