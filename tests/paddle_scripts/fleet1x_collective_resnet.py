# run: fleetrun --paddle --gpus=0,1
# expect: device 1 of trainer 1
# expect: the saved model predicts the same
# falls: pass \d+ batch \d+: loss (\d+\.\d+)
"""A small residual network with the collective fleet of 1.x, and a strategy with many fields of BuildStrategy."""

from __future__ import print_function

import os

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.incubate.fleet.base.role_maker as role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet


def conv_bn(input, filters, act=None):
    conv = fluid.layers.conv2d(input=input, num_filters=filters, filter_size=3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(input=conv, act=act)


def resnet(image, classes):
    conv = conv_bn(image, 8, act="relu")
    for _ in range(2):
        short = conv
        conv = conv_bn(conv_bn(conv, 8, act="relu"), 8)
        conv = fluid.layers.elementwise_add(x=short, y=conv, act="relu")
    pool = fluid.layers.pool2d(input=conv, pool_type="avg", global_pooling=True)
    return fluid.layers.fc(input=pool, size=classes, act="softmax")


def reader(trainer, batch_size, steps):
    patterns = np.random.RandomState(7).randn(4, 3, 8, 8)
    rng = np.random.RandomState(trainer)
    for _ in range(steps):
        label = rng.randint(0, 4, (batch_size, 1)).astype("int64")
        yield (patterns[label[:, 0]] + 0.3 * rng.randn(batch_size, 3, 8, 8)).astype("float32"), label


role = role_maker.PaddleCloudRoleMaker(is_collective=True)
fleet.init(role)
print("device %s of trainer %d" % (os.environ["FLAGS_selected_gpus"], fleet.worker_index()))

image = fluid.data(name="image", shape=[None, 3, 8, 8], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
prediction = resnet(image, 4)
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
accuracy = fluid.layers.accuracy(input=prediction, label=label)
test_program = fluid.default_main_program().clone(for_test=True)

exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_threads = 2
exec_strategy.num_iteration_per_drop_scope = 100
strategy = DistributedStrategy()
strategy.exec_strategy = exec_strategy
strategy.enable_inplace = True
strategy.memory_optimize = False
strategy.fuse_all_reduce_ops = True
strategy.fuse_elewise_add_act_ops = True
strategy.fuse_bn_act_ops = True
strategy.fuse_all_optimizer_ops = True
strategy.fuse_broadcast_ops = False
strategy.sync_batch_norm = False
strategy.nccl_comm_num = 1
strategy.mode = "nccl2"
optimizer = fluid.optimizer.Momentum(
    learning_rate=0.1, momentum=0.9, regularization=fluid.regularizer.L2Decay(1e-4)
)
optimizer = fleet.distributed_optimizer(optimizer, strategy=strategy)
optimizer.minimize(loss, fluid.default_startup_program())

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fleet.startup_program)
for pass_id in range(2):
    for batch_id, (images, labels) in enumerate(reader(fleet.worker_index(), 16, 8)):
        value, acc = exe.run(
            fleet.main_program, feed={"image": images, "label": labels}, fetch_list=[loss.name, accuracy.name]
        )
        if batch_id % 4 == 0 and fleet.worker_index() == 0:
            print("pass %d batch %d: loss %.4f accuracy %.2f" % (pass_id, batch_id, value[0], acc[0]))

if fleet.is_first_worker():
    fleet.save_inference_model(exe, "model", ["image"], [prediction], main_program=fleet._origin_program)
    fluid.io.save_persistables(exe, "all", fleet._origin_program)
    feed = {"image": images, "label": labels}
    (expected,) = exe.run(test_program, feed=feed, fetch_list=[prediction])
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, targets = fluid.io.load_inference_model("model", exe)
        (actual,) = exe.run(program, feed={"image": images}, fetch_list=targets)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    print("the saved model predicts the same")
