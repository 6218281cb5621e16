# falls: epoch \d+: loss (\d+\.\d+)
# expect: evaluation: auc (0\.[89]|1\.0)\d* precision 0\.\d+ recall 0\.\d+ accuracy 0\.\d+
"""An evaluation loop with fluid.metrics: Auc, Precision and Recall in one composite, and Accuracy."""

import numpy as np
import paddle.fluid as fluid

rng = np.random.RandomState(0)
weight = rng.randn(8, 1)
features = rng.randn(600, 8).astype("float32")
clicks = (features.dot(weight) + 0.3 * rng.randn(600, 1) > 0).astype("int64")

x = fluid.data(name="x", shape=[None, 8], dtype="float32")
y = fluid.data(name="y", shape=[None, 1], dtype="int64")
probability = fluid.layers.fc(input=x, size=2, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=y))
batch_accuracy = fluid.layers.accuracy(input=probability, label=y)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adagrad(learning_rate=0.3).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())


def batches(begin, end, size=50):
    for i in range(begin, end, size):
        yield {"x": features[i : i + size], "y": clicks[i : i + size]}


auc = fluid.metrics.Auc(name="auc")
accuracy = fluid.metrics.Accuracy()
binary = fluid.metrics.CompositeMetric()
binary.add_metric(fluid.metrics.Precision())
binary.add_metric(fluid.metrics.Recall())
for epoch in range(3):
    losses = [exe.run(feed=data, fetch_list=[loss])[0][0] for data in batches(0, 400)]
    print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
    for metric in (auc, accuracy, binary):
        metric.reset()
    for data in batches(400, 600):
        preds, acc = exe.run(test_program, feed=data, fetch_list=[probability, batch_accuracy])
        auc.update(preds=preds, labels=data["y"])
        binary.update(preds=preds[:, 1:], labels=data["y"])
        accuracy.update(value=acc, weight=len(preds))
precision, recall = binary.eval()
print("evaluation: auc %.4f precision %.4f recall %.4f accuracy %.4f" % (auc.eval(), precision, recall, accuracy.eval()[0]))
