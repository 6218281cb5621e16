"""MobileNetV1 (Howard et al. 2017) in static-graph calls, with the parameter names of Paddle's models.

Each block is a depthwise convolution (`conv2_1_dw_weights`) and a 1x1 convolution (`conv2_1_sep_weights`), each with
its batch norm (`conv2_1_dw_bn_scale`) and a relu. fuse_relu_depthwise_conv finds 13 of them.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy import fluid
from argosy.fluid.initializer import MSRA
from argosy.fluid.param_attr import ParamAttr

BLOCKS = [  # name, filters that go in, filters that come out, stride
    ("conv2_1", 32, 64, 1),
    ("conv2_2", 64, 128, 2),
    ("conv3_1", 128, 128, 1),
    ("conv3_2", 128, 256, 2),
    ("conv4_1", 256, 256, 1),
    ("conv4_2", 256, 512, 2),
    *((f"conv5_{i}", 512, 512, 1) for i in range(1, 6)),
    ("conv5_6", 512, 1024, 2),
    ("conv6", 1024, 1024, 1),
]


class MobileNetV1:
    """`MobileNetV1(scale=1.0).net(input, class_dim)` adds the network to the program and gives the logits."""

    def __init__(self, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ValueError(f"scale is {scale}; it multiplies all numbers of filters and must be above 0")
        self.scale = scale

    def net(self, input: Any, class_dim: int = 1000) -> Any:
        """The logits [N, class_dim] of an image batch [N, 3, H, W]."""
        x = self.conv_bn(input, self.scaled(32), 3, stride=2, name="conv1")
        for name, filters, out, stride in BLOCKS:
            x = self.depthwise_separable(x, self.scaled(filters), self.scaled(out), stride, name)
        pool = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
        return fluid.layers.fc(
            pool,
            size=class_dim,
            param_attr=ParamAttr(name="fc7_weights", initializer=MSRA()),
            bias_attr=ParamAttr(name="fc7_offset"),
        )

    def scaled(self, filters: int) -> int:
        return int(filters * self.scale)

    def depthwise_separable(self, input: Any, filters: int, out: int, stride: int, name: str) -> Any:
        """A 3x3 filter for each channel, then a 1x1 convolution over the channels."""
        x = self.conv_bn(input, filters, 3, stride, groups=filters, name=f"{name}_dw")
        return self.conv_bn(x, out, 1, name=f"{name}_sep")

    def conv_bn(
        self, input: Any, filters: int, size: int, stride: int = 1, groups: int = 1, *, name: str
    ) -> Any:
        """Convolution without bias, batch normalisation, relu."""
        conv = fluid.layers.conv2d(
            input,
            num_filters=filters,
            filter_size=size,
            stride=stride,
            padding=(size - 1) // 2,
            groups=groups,
            use_cudnn=groups == 1,
            param_attr=ParamAttr(name=f"{name}_weights", initializer=MSRA()),
            bias_attr=False,
        )
        return fluid.layers.batch_norm(
            conv,
            act="relu",
            param_attr=ParamAttr(name=f"{name}_bn_scale"),
            bias_attr=ParamAttr(name=f"{name}_bn_offset"),
            moving_mean_name=f"{name}_bn_mean",
            moving_variance_name=f"{name}_bn_variance",
        )
