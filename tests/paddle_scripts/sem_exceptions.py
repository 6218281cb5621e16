# expect: 16 of 16 mistakes were caught
# suite: fast
"""Mistakes that scripts for Paddle catch by the type of the exception."""

import numpy as np
import paddle
import paddle.fluid as fluid
import paddle.nn.functional as F

paddle.enable_static()
x = fluid.data(name="x", shape=[None, 8], dtype="float32")
ids = fluid.data(name="ids", shape=[None, 1], dtype="int64")
square = fluid.data(name="square", shape=[3, 3], dtype="float32")
weighted = fluid.layers.fc(input=x, size=2)
exe = fluid.Executor(fluid.CPUPlace())
array = np.ones((2, 8), "float32")

MISTAKES = [
    ("an array as input", TypeError, lambda: fluid.layers.fc(input=array, size=2)),
    ("integers as input", TypeError, lambda: fluid.layers.softmax(ids)),
    ("integers as input in 2.0", TypeError, lambda: F.relu(ids)),
    ("floats as ids", TypeError, lambda: fluid.embedding(input=x, size=[10, 2])),
    ("one Variable instead of a list", TypeError, lambda: paddle.concat(x)),
    ("an unknown dtype", TypeError, lambda: fluid.layers.cast(x, "float99")),
    ("a number as a name", TypeError, lambda: fluid.data(name=1, shape=[None, 8])),
    ("a probability above 1", ValueError, lambda: fluid.layers.dropout(x, dropout_prob=2.0)),
    ("an unknown pooling", ValueError, lambda: fluid.layers.pool2d(fluid.layers.unsqueeze(x, [1, 1]), 2, "most")),
    ("matrices that do not fit", ValueError, lambda: fluid.layers.matmul(x, square)),
    ("a rate below 0", ValueError, lambda: fluid.optimizer.SGD(learning_rate=-1.0)),
    ("a program without values", RuntimeError, lambda: exe.run(feed={"x": array}, fetch_list=[weighted])),
    ("the same, as Paddle calls it", fluid.core.EnforceNotMet, lambda: exe.run(feed={"x": array}, fetch_list=[weighted])),
    ("a feed of another shape", ValueError, lambda: exe.run(feed={"x": array[:, :5]}, fetch_list=[x])),
    ("a feed that is no dict", TypeError, lambda: exe.run(feed=array, fetch_list=[x])),
    ("eager mode", NotImplementedError, lambda: paddle.disable_static(paddle.CPUPlace())),
]

caught = 0
for title, kind, mistake in MISTAKES:
    try:
        mistake()
    except kind as error:
        caught += 1
        print("%s: %s" % (title, error))
print("%d of %d mistakes were caught" % (caught, len(MISTAKES)))
