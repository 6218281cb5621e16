# expect: all forms restore the values
"""Every form of saving and loading of Paddle 1.8 and 2.0."""

import os

import numpy as np
import paddle
import paddle.fluid as fluid

x = fluid.data(name="x", shape=[None, 4], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
hidden = fluid.layers.batch_norm(fluid.layers.fc(input=x, size=5, act="tanh"))
prediction = fluid.layers.fc(input=hidden, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
main = fluid.default_main_program()
test = main.clone(for_test=True)
fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=fluid.cpu_places(1))

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(1)
feed = {"x": rng.rand(8, 4).astype("float32"), "y": rng.rand(8).astype("float32")}
for _ in range(3):
    exe.run(compiled, feed=feed, fetch_list=[loss])
persistables = [v for v in main.list_vars() if v.persistable]


def values():
    return {v.name: np.array(fluid.global_scope().find_var(v.name).get_tensor()) for v in persistables}


wanted = values()
(answer,) = exe.run(test, feed=feed, fetch_list=[prediction])


def check(title, restore, names=None):
    """Overwrite all values, restore them, and compare."""
    for v in persistables:
        fluid.global_scope().find_var(v.name).get_tensor().set(np.full(v.shape, 7, "float32"), fluid.CPUPlace())
    restore()
    for name, value in values().items():
        if names is None or name in names:
            assert np.array_equal(value, wanted[name]), (title, name)
    print("%s: ok" % title)


parameters = [p.name for p in main.all_parameters()]
some = parameters[:2]
fluid.io.save_params(executor=exe, dirname="params", main_program=main)
fluid.io.save_params(exe, "one_file", main_program=compiled, filename="all")
fluid.io.save_persistables(exe, "persistables", main_program=main)
fluid.io.save_vars(exe, "vars", main_program=main, predicate=lambda v: v.name in some)
fluid.save(main, "model/fluid")
paddle.static.save(main, "model/static")

check("save_params", lambda: fluid.io.load_params(exe, "params", main_program=main), parameters)
check("save_params of a CompiledProgram", lambda: fluid.io.load_params(exe, "one_file", main, "all"), parameters)
check("save_persistables", lambda: fluid.io.load_persistables(exe, "persistables", main))
check("save_vars", lambda: fluid.io.load_vars(exe, "vars", main, predicate=lambda v: v.name in some), some)
check("fluid.save", lambda: fluid.load(main, "model/fluid", exe))
check("static.save", lambda: paddle.static.load(main, "model/static", exe))
state = fluid.io.load_program_state("model/fluid")
check("set_program_state", lambda: fluid.io.set_program_state(main, state))
state = paddle.static.load_program_state("model/static", var_list=[main.global_block().var(n) for n in parameters])
check("static.set_program_state", lambda: paddle.static.set_program_state(main, state), parameters)


def answer_of(program, feed_names, fetches):
    (value,) = exe.run(program, feed={feed_names[0]: feed["x"]}, fetch_list=fetches)
    assert np.allclose(value, answer), np.abs(value - answer).max()


check("restored", lambda: fluid.io.load_persistables(exe, "persistables", main))
for number, program in enumerate((None, main, compiled)):
    folder = "inference_%d" % number
    fluid.io.save_inference_model(folder, ["x"], [prediction], exe, main_program=program)
    with fluid.scope_guard(fluid.Scope()):
        answer_of(*fluid.io.load_inference_model(folder, exe))
    paddle.static.save_inference_model(folder + "/static", [x], [prediction], exe, program=program)
    with paddle.static.scope_guard(paddle.static.Scope()):
        answer_of(*paddle.static.load_inference_model(folder + "/static", exe))
assert sorted(os.listdir("inference_0"))[:2] == ["__model__", "__params__"]
print("all forms restore the values")
