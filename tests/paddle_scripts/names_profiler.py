# expect: Profiling Report
# expect: Event +Calls +Total +Min\. +Max\. +Ave\. +Ratio\.
# expect: trace: \d+ events
"""A convolutional network under fluid.profiler, as in the 1.8 guide about performance."""

import json

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.profiler as profiler

image = fluid.data(name="image", shape=[None, 1, 12, 12], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
conv = fluid.nets.simple_img_conv_pool(input=image, num_filters=4, filter_size=3, pool_size=2, pool_stride=2, act="relu")
prediction = fluid.layers.fc(input=conv, size=10, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(1)
with profiler.profiler("All", "total", profile_path="./profile") as prof:
    for step in range(5):
        if step == 2:
            profiler.reset_profiler()
        batch = {"image": rng.rand(8, 1, 12, 12).astype("float32"), "label": rng.randint(0, 10, (8, 1)).astype("int64")}
        exe.run(fluid.default_main_program(), feed=batch, fetch_list=[loss])

with open("./profile") as handle:
    print("trace: %d events" % len(json.load(handle)["traceEvents"]))
