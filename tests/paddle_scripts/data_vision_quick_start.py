# falls: epoch \d+: loss (\d+\.\d+)
# expect: accuracy (0\.[5-9]|1\.0)
"""Clothes by LeNet: paddle.vision transforms and data sets, a paddle.io DataLoader, a static program of 2.0."""

import numpy as np
import paddle
import paddle.static as static
from paddle.io import DataLoader, Subset
from paddle.vision.datasets import FashionMNIST
from paddle.vision.transforms import Compose, Normalize, RandomCrop, ToTensor

paddle.enable_static()
paddle.seed(1)
augment = Compose([RandomCrop(28, padding=1), ToTensor(), Normalize(mean=[0.5], std=[0.5])])
plain = Compose([ToTensor(), Normalize(mean=[0.5], std=[0.5])])
train = Subset(FashionMNIST(mode="train", transform=augment), range(640))
test = Subset(FashionMNIST(mode="test", transform=plain), range(200))

image = static.data("image", [None, 1, 28, 28], "float32")
label = static.data("label", [None, 1], "int64")
model = paddle.vision.models.LeNet(num_classes=10)
logits = model(image)
loss = paddle.nn.functional.cross_entropy(logits, label)
metric = paddle.metric.Accuracy()
correct = metric.compute(logits, label)
test_program = static.default_main_program().clone(for_test=True)
paddle.optimizer.Adam(learning_rate=0.003).minimize(loss)

exe = static.Executor(paddle.CPUPlace())
exe.run(static.default_startup_program())
loader = DataLoader(train, feed_list=[image, label], places=paddle.CPUPlace(), batch_size=64, shuffle=True, drop_last=True)
for epoch in range(2):
    losses = [exe.run(feed=data, fetch_list=[loss])[0] for data in loader()]
    print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
for data in DataLoader(test, feed_list=[image, label], places=paddle.CPUPlace(), batch_size=50):
    metric.update(exe.run(test_program, feed=data, fetch_list=[correct])[0])
print("accuracy %.3f" % metric.accumulate())
