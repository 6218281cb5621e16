"""ResNet 18/34/50/101/152 (He et al. 2015) in static-graph calls, with the variable names of the quick start.

Names matter: strategies speak of them. conv1 has `conv1_weights`, its normalisation `bn_conv1_scale` and
`bn_conv1_offset`; the sum at the end of the first block is `res2a.add.output.5.tmp_0`.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

from argosy import fluid
from argosy.fluid.param_attr import ParamAttr

BLOCKS = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3], 152: [3, 8, 36, 3]}
FILTERS = [64, 128, 256, 512]


class ResNet:
    """`ResNet(layers=50).net(input, class_dim)` adds the network to the program and gives the logits."""

    def __init__(self, layers: int = 50) -> None:
        if layers not in BLOCKS:
            raise ValueError(f"there is no ResNet{layers}; layers is one of {sorted(BLOCKS)}")
        self.layers = layers

    def net(self, input: Any, class_dim: int = 1000, data_format: str = "NCHW") -> Any:
        """The logits [N, class_dim] of an image batch [N, 3, H, W]."""
        self.data_format = data_format
        self.channel_axis = 1 if data_format == "NCHW" else 3
        block = self.bottleneck if self.layers >= 50 else self.basic
        x = self.conv_bn(input, 64, 7, stride=2, act="relu", name="conv1")
        x = fluid.layers.pool2d(
            x, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max", data_format=data_format
        )
        for stage, count in enumerate(BLOCKS[self.layers]):
            for i in range(count):
                stride = 2 if i == 0 and stage > 0 else 1
                x = block(x, FILTERS[stage], stride, name=self.block_name(stage, i))
        pool = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True, data_format=data_format)
        limit = 1.0 / math.sqrt(pool.shape[self.channel_axis])
        return fluid.layers.fc(
            pool,
            size=class_dim,
            param_attr=ParamAttr(name="fc_0.w_0", initializer=fluid.initializer.Uniform(-limit, limit)),
            bias_attr=ParamAttr(name="fc_0.b_0"),
        )

    def block_name(self, stage: int, i: int) -> str:
        """res2a, res2b, …; in the long third stage of ResNet101 and 152 res4a, res4b1, res4b2, …"""
        if self.layers in (101, 152) and stage == 2:
            return "res4a" if i == 0 else f"res4b{i}"
        return f"res{stage + 2}{chr(97 + i)}"

    def conv_bn(
        self, input: Any, filters: int, size: int, stride: int = 1, act: str | None = None, *, name: str
    ) -> Any:
        """Convolution without bias, then batch normalisation."""
        conv = fluid.layers.conv2d(
            input,
            num_filters=filters,
            filter_size=size,
            stride=stride,
            padding=(size - 1) // 2,
            param_attr=ParamAttr(name=f"{name}_weights"),
            bias_attr=False,
            name=f"{name}.conv2d.output.1",
            data_format=self.data_format,
        )
        bn = f"bn_{name}" if name == "conv1" else f"bn{name[3:]}"
        return fluid.layers.batch_norm(
            conv,
            act=act,
            name=f"{bn}.output.1",
            param_attr=ParamAttr(name=f"{bn}_scale"),
            bias_attr=ParamAttr(f"{bn}_offset"),
            moving_mean_name=f"{bn}_mean",
            moving_variance_name=f"{bn}_variance",
            data_layout=self.data_format,
        )

    def shortcut(self, input: Any, filters: int, stride: int, name: str) -> Any:
        """The input itself, or a 1x1 convolution where the shape changes."""
        if input.shape[self.channel_axis] == filters and stride == 1:
            return input
        return self.conv_bn(input, filters, 1, stride, name=f"{name}_branch1")

    def bottleneck(self, input: Any, filters: int, stride: int, name: str) -> Any:
        """1x1, 3x3, 1x1 with four times the filters, and the shortcut added."""
        x = self.conv_bn(input, filters, 1, act="relu", name=f"{name}_branch2a")
        x = self.conv_bn(x, filters, 3, stride, act="relu", name=f"{name}_branch2b")
        x = self.conv_bn(x, filters * 4, 1, name=f"{name}_branch2c")
        short = self.shortcut(input, filters * 4, stride, name)
        return fluid.layers.elementwise_add(x=short, y=x, act="relu", name=f"{name}.add.output.5")

    def basic(self, input: Any, filters: int, stride: int, name: str) -> Any:
        """Two 3x3 convolutions, and the shortcut added."""
        x = self.conv_bn(input, filters, 3, stride, act="relu", name=f"{name}_branch2a")
        x = self.conv_bn(x, filters, 3, name=f"{name}_branch2b")
        short = self.shortcut(input, filters, stride, name)
        return fluid.layers.elementwise_add(x=short, y=x, act="relu", name=f"{name}.add.output.5")
