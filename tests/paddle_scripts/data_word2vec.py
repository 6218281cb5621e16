# falls: pass \d+: loss (\d+\.\d+)
"""An n-gram language model over imikolov with fluid.io.PyReader, in the style of Paddle 1.x."""

import paddle
import paddle.fluid as fluid

EMBED_SIZE, HIDDEN_SIZE, N, BATCH_SIZE = 16, 64, 5, 128

word_dict = paddle.dataset.imikolov.build_dict()
dict_size = len(word_dict)

words = [fluid.data(name=name, shape=[None, 1], dtype="int64") for name in ("first", "second", "third", "fourth", "next")]
embedded = [
    fluid.embedding(
        input=word,
        size=[dict_size, EMBED_SIZE],
        param_attr=fluid.ParamAttr(name="shared_w"),
    )
    for word in words[:4]
]
context = fluid.layers.concat(
    [fluid.layers.reshape(e, shape=[-1, EMBED_SIZE]) for e in embedded], axis=1
)
hidden = fluid.layers.fc(input=context, size=HIDDEN_SIZE, act="sigmoid")
predicted = fluid.layers.fc(input=hidden, size=dict_size, act="softmax")
cost = fluid.layers.cross_entropy(input=predicted, label=words[4])
avg_cost = fluid.layers.mean(cost)
fluid.optimizer.Adam(learning_rate=0.01).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

reader = fluid.io.PyReader(feed_list=words, capacity=8, iterable=True)
train = paddle.reader.firstn(paddle.dataset.imikolov.train(word_dict, N), 6000)
reader.decorate_sample_list_generator(paddle.batch(paddle.reader.shuffle(train, buf_size=2000), BATCH_SIZE), place)
for pass_id in range(3):
    total, batches = 0.0, 0
    for data in reader():
        (value,) = exe.run(fluid.default_main_program(), feed=data, fetch_list=[avg_cost])
        total, batches = total + value[0], batches + 1
    print("pass %d: loss %.4f" % (pass_id, total / batches))
