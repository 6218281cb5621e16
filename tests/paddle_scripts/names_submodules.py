# falls: pass \d+: cost (\d+\.\d+)
# expect: average cost \d+\.\d+
# suite: fast
"""Imports from the modules below fluid, as scripts of 1.x write them, and a layer of its own with LayerHelper."""

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.core as core
import paddle.fluid.layers.nn as nn
import paddle.fluid.layers.ops as ops
import paddle.fluid.layers.tensor as tensor
from paddle.fluid import unique_name
from paddle.fluid.average import WeightedAverage
from paddle.fluid.backward import append_backward
from paddle.fluid.compiler import BuildStrategy, CompiledProgram
from paddle.fluid.executor import Executor
from paddle.fluid.framework import Program, default_main_program, in_dygraph_mode, program_guard
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.learning_rate_scheduler import exponential_decay
from paddle.fluid.layers.loss import square_error_cost
from paddle.fluid.param_attr import ParamAttr

fluid.require_version("1.6.0")
assert not in_dygraph_mode()
assert append_backward


def scaled(input, param_attr=None, act=None):
    """input times a trained number."""
    helper = LayerHelper("scaled", **locals())
    factor = helper.create_parameter(attr=helper.param_attr, shape=[1], dtype=helper.input_dtype())
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    helper.append_op(type="elementwise_mul", inputs={"X": [helper.input()], "Y": [factor]}, outputs={"Out": [out]})
    return helper.append_activation(out)


main, startup = Program(), Program()
with program_guard(main, startup), unique_name.guard():
    x = fluid.data("x", [None, 6], core.VarDesc.VarType.FP32)
    y = fluid.data("y", [None, 1])
    assert x.dtype == core.VarDesc.VarType.FP32
    hidden = ops.tanh(nn.fc(x, 8))
    prediction = scaled(nn.fc(tensor.concat([hidden, x], axis=1), 1), ParamAttr(initializer=Constant(1.0)))
    cost = nn.mean(square_error_cost(prediction, y))
    fluid.optimizer.SGD(exponential_decay(0.1, 10, 0.9)).minimize(cost)
assert default_main_program() is not main

exe = Executor(core.CPUPlace())
exe.run(startup)
program = CompiledProgram(main).with_data_parallel(loss_name=cost.name, build_strategy=BuildStrategy())
rng = np.random.RandomState(3)
weight = rng.randn(6, 1).astype("float32")
average = WeightedAverage()
for step in range(30):
    batch = rng.randn(16, 6).astype("float32")
    (value,) = exe.run(program, feed={"x": batch, "y": batch.dot(weight)}, fetch_list=[cost])
    average.add(value, 16)
    print("pass %d: cost %.4f" % (step, value[0]))
print("average cost %.4f" % average.eval()[0])
