# falls: epoch \d+, step \d+: loss (\d+\.\d+)
# expect: test: accuracy 0\.\d+
"""Recognize digits in the style of Paddle 2.0: static mode, nn layers, DataLoader, static.save."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import paddle.static as static

paddle.enable_static()


class LeNet(nn.Layer):
    def __init__(self, num_classes=10):
        super(LeNet, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 4, 3, stride=1, padding=1), nn.ReLU(), nn.MaxPool2D(2, 2),
            nn.Conv2D(4, 8, 5, stride=1, padding=0), nn.ReLU(), nn.MaxPool2D(2, 2),
        )
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Sequential(nn.Linear(200, 64), nn.Linear(in_features=64, out_features=num_classes))

    def forward(self, inputs):
        x = self.features(inputs)
        x = paddle.flatten(x=x, start_axis=1)
        return self.fc(self.dropout(input=x))


main_program, startup_program = static.Program(), static.Program()
main_program.random_seed = startup_program.random_seed = 7
with static.program_guard(main_program, startup_program):
    image = static.data(name="image", shape=[-1, 1, 28, 28], dtype="float32")
    label = static.data(name="label", shape=[-1, 1], dtype="int64")
    logits = LeNet()(image)
    loss = F.cross_entropy(input=logits, label=label)
    accuracy = paddle.metric.accuracy(input=F.softmax(x=logits), label=label, k=1)
    test_program = main_program.clone(for_test=True)
    scheduler = paddle.optimizer.lr.StepDecay(learning_rate=0.005, step_size=30, gamma=0.5)
    optimizer = paddle.optimizer.Adam(learning_rate=scheduler, weight_decay=paddle.regularizer.L2Decay(1e-4))
    optimizer.minimize(loss)


def samples(reader, count):
    for number, (pixels, digit) in enumerate(reader()):
        if number == count:
            return
        yield pixels.reshape(1, 28, 28).astype("float32"), np.array([digit], dtype="int64")


loader = paddle.io.DataLoader.from_generator(feed_list=[image, label], capacity=4, iterable=True)
loader.set_sample_generator(
    lambda: samples(paddle.dataset.mnist.train(), 640), batch_size=32, drop_last=True, places=static.cpu_places()
)
exe = static.Executor(paddle.CPUPlace())
exe.run(startup_program)
compiled = static.CompiledProgram(main_program)
for epoch in range(2):
    for step, data in enumerate(loader()):
        (value,) = exe.run(compiled, feed=data, fetch_list=[loss])
        scheduler.step()
        if step % 5 == 0:
            print("epoch %d, step %d: loss %.4f" % (epoch, step, value[0]))

pixels, digits = zip(*samples(paddle.dataset.mnist.test(), 128))
feed = {"image": np.stack(pixels), "label": np.stack(digits)}
(value,) = exe.run(test_program, feed=feed, fetch_list=[accuracy])
print("test: accuracy %.3f" % value[0])

static.save(main_program, "mnist/lenet")
static.save_inference_model("mnist/inference", [image], [logits], exe, program=compiled)
before = exe.run(test_program, feed=feed, fetch_list=[logits])[0]
for parameter in main_program.all_parameters():
    static.global_scope().find_var(parameter.name).get_tensor().set(
        np.zeros(parameter.shape, "float32"), paddle.CPUPlace()
    )
static.load(main_program, "mnist/lenet", exe)
after = exe.run(test_program, feed=feed, fetch_list=[logits])[0]
inference, feed_names, fetches = static.load_inference_model("mnist/inference", exe)
again = exe.run(inference, feed={feed_names[0]: feed["image"]}, fetch_list=fetches)[0]
assert np.allclose(before, after) and np.allclose(before, again)
