# falls: step \d+: cost (\d+\.\d+)
# expect: predicted rating
"""A recommender over movielens: the cosine of a user's and a film's features, in the style of Paddle 1.x."""

import numpy as np
import paddle
import paddle.fluid as fluid

movielens = paddle.dataset.movielens
BATCH = 64


def embedded(name, size, width):
    ids = fluid.data(name=name, shape=[None, 1], dtype="int64")
    vector = fluid.embedding(input=ids, size=[size, width])
    return fluid.layers.fc(input=fluid.layers.reshape(vector, [-1, width]), size=16)


def averaged(name, size, length):
    """The mean vector of a list of ids that is padded with -1 to `length`."""
    ids = fluid.data(name=name, shape=[None, length], dtype="int64")
    mask = fluid.layers.cast(ids >= 0, "float32")
    vectors = fluid.embedding(input=fluid.layers.cast(ids >= 0, "int64") * ids, size=[size, 16])
    total = fluid.layers.reduce_sum(vectors * fluid.layers.unsqueeze(mask, axes=[2]), dim=1)
    return total / (fluid.layers.reduce_sum(mask, dim=1, keep_dim=True) + 1e-6)


user = fluid.layers.fc(
    input=fluid.layers.concat(
        [
            embedded("user_id", movielens.max_user_id() + 1, 16),
            embedded("gender_id", 2, 8),
            embedded("age_id", len(movielens.age_table), 8),
            embedded("job_id", movielens.max_job_id() + 1, 8),
        ],
        axis=1,
    ),
    size=32,
    act="tanh",
)
CATEGORIES, TITLE = 3, 6
film = fluid.layers.fc(
    input=fluid.layers.concat(
        [
            embedded("movie_id", movielens.max_movie_id() + 1, 16),
            averaged("category_id", len(movielens.movie_categories()), CATEGORIES),
            averaged("movie_title", len(movielens.get_movie_title_dict()), TITLE),
        ],
        axis=1,
    ),
    size=32,
    act="tanh",
)
similarity = fluid.layers.reduce_sum(
    fluid.layers.l2_normalize(user, axis=1) * fluid.layers.l2_normalize(film, axis=1), dim=1, keep_dim=True
)
prediction = fluid.layers.scale(similarity, scale=5.0)
score = fluid.data(name="score", shape=[None, 1], dtype="float32")
cost = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=score))
fluid.optimizer.Adam(learning_rate=0.01).minimize(cost)

NAMES = ["user_id", "gender_id", "age_id", "job_id", "movie_id", "category_id", "movie_title", "score"]


def padded(ids, length):
    return (list(ids) + [-1] * length)[:length]


def prepared(reader):
    def read():
        for sample in reader():
            yield sample[:5] + [padded(sample[5], CATEGORIES), padded(sample[6], TITLE), sample[7]]

    return read


program = fluid.default_main_program()
feeder = fluid.DataFeeder(feed_list=NAMES, place=fluid.CPUPlace(), program=program)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
train = paddle.batch(paddle.reader.shuffle(prepared(movielens.train()), 3000), BATCH)
step = 0
for epoch in range(3):
    for data in train():
        (value,) = exe.run(program, feed=feeder.feed(data), fetch_list=[cost])
        if step % 20 == 0:
            print("step %d: cost %.4f" % (step, value[0]))
        step += 1

sample = next(prepared(movielens.test())())
(rating,) = exe.run(program.clone(for_test=True), feed=feeder.feed([sample]), fetch_list=[prediction])
print("predicted rating %.2f, given %.2f" % (rating[0][0], sample[-1][0]))
