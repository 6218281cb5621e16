# expect: seeds are independent of the program
# expect: step 19: loss \d+\.\d+
# falls: step \d+: loss (\d+\.\d+)
"""Initializers of Paddle 1.x with all their arguments, and seeds of single layers."""

import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid.initializer import (
    BilinearInitializer,
    ConstantInitializer,
    MSRAInitializer,
    NormalInitializer,
    NumpyArrayInitializer,
    TruncatedNormalInitializer,
    UniformInitializer,
    XavierInitializer,
)

INITIALIZERS = [
    ConstantInitializer(value=0.25, force_cpu=True),
    UniformInitializer(low=-0.5, high=0.5, seed=10),
    NormalInitializer(loc=0.1, scale=0.2, seed=11),
    TruncatedNormalInitializer(loc=0.0, scale=2.0, seed=12),
    XavierInitializer(uniform=False, fan_in=8, fan_out=8, seed=13),
    MSRAInitializer(uniform=True, fan_in=8, seed=14),
    NumpyArrayInitializer(np.arange(32, dtype="float32").reshape(8, 4)),
]


def draw(random_seed, with_other_layers):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = random_seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data(name="x", shape=[None, 8], dtype="float32")
        if with_other_layers:
            fluid.layers.fc(input=x, size=3)
        wanted = [
            fluid.layers.create_parameter([8, 4], "float32", attr=fluid.ParamAttr(name="w%d" % i, initializer=init))
            for i, init in enumerate(INITIALIZERS)
        ]
        wanted += [
            fluid.layers.dropout(x, dropout_prob=0.3, seed=7, dropout_implementation="upscale_in_train"),
            fluid.layers.uniform_random(shape=[2, 3], min=0.0, max=1.0, seed=8),
            fluid.layers.gaussian_random(shape=[2, 3], mean=1.0, std=0.5, seed=9),
            fluid.layers.create_global_var(
                shape=[2, 2], value=np.array([[1, 2], [3, 4]]), dtype="double", persistable=True, name="table"
            ),
        ]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        return exe.run(main, feed={"x": np.ones((4, 8), "float32")}, fetch_list=wanted)


first, second = draw(0, False), draw(1234, True)
assert all(np.array_equal(a, b) for a, b in zip(first, second))
assert first[-1].dtype == np.float64 and (first[0] == 0.25).all()
print("seeds are independent of the program")

# An image enlarged by fixed bilinear weights, and a regression with an initializer for every parameter.
image = fluid.data(name="image", shape=[None, 2, 6, 6], dtype="float32")
enlarged = fluid.layers.conv2d_transpose(
    image, num_filters=2, filter_size=4, stride=2, padding=1, groups=2, bias_attr=False,
    param_attr=fluid.ParamAttr(learning_rate=0.0, trainable=False, initializer=BilinearInitializer()),
)
features = fluid.layers.fc(
    input=enlarged, size=16, act="relu",
    param_attr=fluid.ParamAttr(initializer=MSRAInitializer(uniform=False, seed=3)),
    bias_attr=fluid.initializer.Constant(0.1),
)
label = fluid.layers.data(name="label", shape=[1], dtype="int")
one_hot = fluid.one_hot(input=label, depth=4, allow_out_of_range=True)
logits = fluid.layers.fc(input=features, size=4, param_attr=NormalInitializer(0.0, 0.05, 21))
probability = fluid.layers.softmax(logits)
loss = fluid.layers.mean(
    fluid.layers.cross_entropy(input=probability, label=fluid.layers.reshape(one_hot, [-1, 4]), soft_label=True)
)
fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(4)
images, labels = rng.rand(32, 2, 6, 6).astype("float32"), rng.randint(0, 4, 32).astype("int64")
for step in range(20):
    (value,) = exe.run(feed={"image": images, "label": labels}, fetch_list=[loss])
    print("step %d: loss %.4f" % (step, value[0]))
