# falls: step \d+: loss (\d+\.\d+)
# expect: feeds \['words'\]
# expect: same scores True
# expect: same attention True \[\[0, 3, 4, 6\]\]
"""Attention over the words of a sentence, saved with save_inference_model and loaded into another scope."""

import numpy as np
import paddle.fluid as fluid

words = fluid.data(name="words", shape=[None, 1], dtype="int64", lod_level=1)
label = fluid.data(name="label", shape=[None, 1], dtype="float32")
rows = fluid.layers.embedding(words, size=[50, 8])
attention = fluid.layers.sequence_softmax(fluid.layers.fc(rows, 1))
sentence = fluid.layers.sequence_pool(fluid.layers.elementwise_mul(rows, attention), "sum")
score = fluid.layers.fc(sentence, 1, act="sigmoid")
loss = fluid.layers.mean(fluid.layers.log_loss(score, label))
fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(0)
for step in range(40):
    texts = [rng.randint(0, 50, rng.randint(1, 9)).tolist() for _ in range(16)]
    labels = np.array([[float(min(text) < 10)] for text in texts], "float32")
    ids = fluid.create_lod_tensor(texts, [[len(text) for text in texts]], place)
    (value,) = exe.run(feed={"words": ids, "label": labels}, fetch_list=[loss])
    if step % 13 == 0:
        print("step %d: loss %.4f" % (step, value[0]))

fluid.io.save_inference_model("model", ["words"], [score, attention], exe)
test = fluid.create_lod_tensor([[1, 2, 3], [4], [5, 6]], [[3, 1, 2]], place)
pruned = fluid.default_main_program().clone(for_test=True)
fed = {"words": test, "label": np.zeros((3, 1), "float32")}
(scores,) = exe.run(pruned, feed=fed, fetch_list=[score])
(weights,) = exe.run(pruned, feed=fed, fetch_list=[attention], return_numpy=False)
with fluid.scope_guard(fluid.Scope()):
    program, feeds, fetches = fluid.io.load_inference_model("model", exe)
    print("feeds", feeds)
    (loaded,) = exe.run(program, feed={feeds[0]: test}, fetch_list=fetches[:1])
    (loaded_weights,) = exe.run(program, feed={feeds[0]: test}, fetch_list=fetches[1:], return_numpy=False)
print("same scores", np.array_equal(scores, loaded))
print("same attention", np.array_equal(np.array(weights), np.array(loaded_weights)), loaded_weights.lod())
