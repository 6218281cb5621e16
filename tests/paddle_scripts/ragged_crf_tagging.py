# falls: pass \d+: cost (\d+\.\d+)
# expect: correct tags 0\.9|correct tags 1
"""Sequence labelling of 1.x: embedding, a GRU in both directions, a linear-chain CRF."""

import numpy as np
import paddle.fluid as fluid

WORDS, TAGS, HIDDEN = 20, 3, 8

word = fluid.layers.data(name="word", shape=[1], dtype="int64", lod_level=1)
target = fluid.layers.data(name="target", shape=[1], dtype="int64", lod_level=1)
rows = fluid.layers.embedding(input=word, size=[WORDS, 16])
forward = fluid.layers.dynamic_gru(input=fluid.layers.fc(rows, HIDDEN * 3), size=HIDDEN)
backward = fluid.layers.dynamic_gru(input=fluid.layers.fc(rows, HIDDEN * 3), size=HIDDEN, is_reverse=True)
emission = fluid.layers.fc(input=fluid.layers.concat([forward, backward], axis=1), size=TAGS)
crf_cost = fluid.layers.linear_chain_crf(
    input=emission, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=1.0)
)
decoded = fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
avg_cost = fluid.layers.mean(crf_cost)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.03).minimize(avg_cost)

rng = np.random.RandomState(0)


def batch(size=16):
    """The tag 1 begins a name (words 0 to 4), 2 continues it, 0 is outside of names."""
    samples = []
    for _ in range(size):
        text = rng.randint(0, WORDS, rng.randint(2, 9))
        is_name = text < 5
        tags = [0 if not n else 2 if i and is_name[i - 1] else 1 for i, n in enumerate(is_name)]
        samples.append((text.tolist(), tags))
    return samples


place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(feed_list=[word, target], place=place)
for number in range(3):
    costs = [exe.run(feed=feeder.feed(batch()), fetch_list=[avg_cost])[0][0] for _ in range(15)]
    print("pass %d: cost %.4f" % (number, np.mean(costs)))
data = batch(64)
(tags,) = exe.run(test_program, feed=feeder.feed(data), fetch_list=[decoded], return_numpy=False)
expected = np.concatenate([tags_of for _, tags_of in data])
assert tags.recursive_sequence_lengths() == [[len(text) for text, _ in data]]
print("correct tags %.3f" % (np.array(tags).ravel() == expected).mean())
