# falls: step \d+: loss (\d+\.\d+)
# suite: fast
"""Classification of texts with a bidirectional LSTM of Paddle 2.0."""

import numpy as np
import paddle
import paddle.nn as nn

paddle.enable_static()


class Classifier(nn.Layer):
    def __init__(self, words, classes):
        super(Classifier, self).__init__()
        self.embedding = nn.Embedding(words, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 12, num_layers=2, direction="bidirectional", dropout=0.1)
        self.fc = nn.Linear(24, classes)

    def forward(self, text):
        outputs, (hidden, cell) = self.lstm(self.embedding(text))
        last = paddle.concat([hidden[-2], hidden[-1]], axis=-1)
        return self.fc(last + paddle.mean(outputs, axis=1))


text = paddle.static.data(name="text", shape=[None, None], dtype="int64")
label = paddle.static.data(name="label", shape=[None, 1], dtype="int64")
loss = nn.CrossEntropyLoss()(Classifier(30, 3)(text), label)
paddle.optimizer.Adam(learning_rate=0.02).minimize(loss)

exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())
rng = np.random.RandomState(0)
for step in range(20):
    classes = rng.randint(0, 3, (16, 1))
    length = 5 + step % 3
    words = 1 + classes * 9 + rng.randint(0, 9, (16, length))
    (value,) = exe.run(feed={"text": words.astype("int64"), "label": classes.astype("int64")}, fetch_list=[loss])
    print("step %d: loss %.4f" % (step, value[0]))
