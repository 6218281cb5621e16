# falls: Adam step \d+: loss (\d+\.\d+)
# expect: SGD: the rate follows its Variable
# expect: fed features give the same loss
"""Learning rates and betas as Variables, sizes from Variables, and an intermediate variable that is fed."""

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.layers as layers

rng = np.random.RandomState(0)
inputs, targets = rng.rand(16, 6).astype("float32"), rng.rand(16).astype("float32")


def network():
    x = layers.data(name="x", shape=[6], dtype="float32")
    y = layers.data(name="y", shape=[1], dtype="float32")
    batch = layers.shape(x)[0]
    pairs = layers.reshape(x, shape=[batch, 2, 3])
    flat = layers.reshape(pairs, shape=[-1, 1], actual_shape=layers.concat([batch, layers.fill_constant([1], "int32", 6)]))
    parts = layers.split(flat, num_or_sections=2, dim=layers.fill_constant([1], "int32", 1))
    features = layers.fc(input=layers.concat(parts, axis=1), size=8, act="tanh", param_attr=fluid.initializer.Normal(seed=1))
    prediction = layers.fc(input=features, size=1, param_attr=fluid.initializer.Normal(seed=2))
    return features, layers.mean(layers.square_error_cost(input=prediction, label=y))


def build(make_optimizer):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        features, loss = network()
        test = main.clone(for_test=True)
        optimizer = make_optimizer()
        minimized = optimizer.minimize(loss)
    return main, startup, test, features, loss, optimizer, minimized


exe = fluid.Executor(fluid.CPUPlace())
feed = {"x": inputs, "y": targets}


def global_var(name, value):
    return layers.create_global_var(shape=[1], value=value, dtype="float32", persistable=True, name=name)


# SGD with a rate in the scope, which the script halves.
main, startup, test, features, loss, optimizer, minimized = build(
    lambda: fluid.optimizer.SGD(learning_rate=global_var("rate", 0.2))
)
(weight, gradient) = minimized[1][0]
exe.run(startup)
rate = fluid.global_scope().find_var("rate").get_tensor()
for value in (0.2, 0.1, 0.05):
    rate.set(np.array([value], "float32"), fluid.CPUPlace())
    before = np.array(fluid.global_scope().find_var(weight.name).get_tensor())
    fetched, step = exe.run(main, feed=feed, fetch_list=[loss, [gradient]])
    after = np.array(fluid.global_scope().find_var(weight.name).get_tensor())
    assert np.allclose(after, before - value * step, atol=1e-6)
    assert abs(optimizer.current_step_lr() - value) < 1e-6
print("SGD: the rate follows its Variable")

# Adam with a rate that the program computes, and betas as Variables.
main, startup, test, features, loss, _, _ = build(
    lambda: fluid.optimizer.AdamOptimizer(
        learning_rate=layers.elementwise_mul(global_var("base", 0.1), layers.fill_constant([1], "float32", 0.3)),
        beta1=global_var("beta1", 0.85),
        beta2=global_var("beta2", 0.95),
    )
)
exe.run(startup)
for step in range(20):
    (value,) = exe.run(main, feed=feed, fetch_list=[loss])
    print("Adam step %d: loss %.4f" % (step, value[0]))

hidden, expected = exe.run(test, feed=feed, fetch_list=[features, loss])
(value,) = exe.run(test, feed={features.name: hidden, "y": targets}, fetch_list=[loss])
assert np.allclose(value, expected)
print("fed features give the same loss")
