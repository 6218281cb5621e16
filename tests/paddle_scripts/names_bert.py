# falls: step \d+: loss (\d+\.\d+)
"""A pre-training step of a small BERT: masked words and next sentence, with Paddle 2.0's layers and AdamW."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.enable_static()
VOCABULARY, WIDTH, LENGTH = 50, 32, 12


class Embeddings(nn.Layer):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.kind = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, words, kinds):
        ones = paddle.ones_like(words)
        positions = paddle.cumsum(ones, axis=-1) - ones
        total = self.word(words) + self.position(positions) + self.kind(kinds)
        return self.dropout(self.norm(total))


class Bert(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.next_sentence = nn.Linear(WIDTH, 2)
        self.transform = nn.Linear(WIDTH, WIDTH)

    def forward(self, words, kinds, places):
        mask = paddle.unsqueeze((words == 0).astype("float32") * -1e9, axis=[1, 2])
        hidden = self.encoder(self.embeddings(words, kinds), mask)
        masked = paddle.gather(paddle.reshape(hidden, [-1, WIDTH]), places)
        scores = paddle.matmul(F.gelu(self.transform(masked)), self.embeddings.word.weight, transpose_y=True)
        return scores, self.next_sentence(paddle.tanh(self.pooler(hidden[:, 0])))


main, startup = paddle.static.Program(), paddle.static.Program()
with paddle.static.program_guard(main, startup):
    words = paddle.static.data("words", [None, LENGTH], "int64")
    kinds = paddle.static.data("kinds", [None, LENGTH], "int64")
    places = paddle.static.data("places", [None], "int64")
    targets = paddle.static.data("targets", [None, 1], "int64")
    follows = paddle.static.data("follows", [None, 1], "int64")
    scores, order = Bert()(words, kinds, places)
    loss = F.cross_entropy(scores, targets) + F.cross_entropy(order, follows)
    rate = paddle.optimizer.lr.LinearWarmup(0.01, 5, 0.001, 0.01)
    clip = nn.ClipGradByGlobalNorm(1.0)
    decayed = lambda name: "norm" not in name and not name.endswith("b_0")
    optimizer = paddle.optimizer.AdamW(rate, weight_decay=0.01, apply_decay_param_fun=decayed, grad_clip=clip)
    optimizer.minimize(loss)

exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(startup)
rng = np.random.RandomState(0)
batch = rng.randint(2, VOCABULARY, (8, LENGTH)).astype("int64")
positions = np.arange(8) * LENGTH + rng.randint(1, LENGTH, 8)
answers = batch.reshape(-1)[positions].reshape(-1, 1)
batch.reshape(-1)[positions] = 1
feed = {
    "words": batch,
    "kinds": np.repeat([[0] * 6 + [1] * 6], 8, axis=0).astype("int64"),
    "places": positions.astype("int64"),
    "targets": answers,
    "follows": (np.arange(8) % 2).reshape(-1, 1).astype("int64"),
}
for step in range(25):
    (value,) = exe.run(main, feed=feed, fetch_list=[loss])
    rate.step()
    print("step %d: loss %.4f" % (step, value[0]))
