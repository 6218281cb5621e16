# mypy: ignore-errors
# ruff: noqa
# A network as scripts for Paddle 2.0's static mode define it; nothing in here knows of Argosy.
# SPDX-License-Identifier: Apache-2.0
import math

import paddle
from paddle import fluid
from paddle.fluid.param_attr import ParamAttr

__all__ = ["ResNet", "ResNet18", "ResNet50"]


class ResNet:
    def __init__(self, layers=50):
        self.layers = layers

    def net(self, input, class_dim=1000, data_format="NCHW"):
        supported = [18, 50]
        assert self.layers in supported, f"supported layers are {supported} but input layer is {self.layers}"
        depth = {18: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[self.layers]
        conv = self.conv_bn_layer(
            input=input,
            num_filters=64,
            filter_size=7,
            stride=2,
            act="relu",
            name="conv1",
            data_format=data_format,
        )
        conv = fluid.layers.pool2d(
            input=conv, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max", data_format=data_format
        )
        block = self.bottleneck_block if self.layers >= 50 else self.basic_block
        for stage, repeat in enumerate(depth):
            for i in range(repeat):
                conv = block(
                    input=conv,
                    num_filters=[64, 128, 256, 512][stage],
                    stride=2 if i == 0 and stage != 0 else 1,
                    name="res" + str(stage + 2) + chr(97 + i),
                    data_format=data_format,
                )
        pool = fluid.layers.pool2d(input=conv, pool_type="avg", global_pooling=True, data_format=data_format)
        stdv = 1.0 / math.sqrt(pool.shape[1] * 1.0)
        return fluid.layers.fc(
            input=pool,
            size=class_dim,
            param_attr=fluid.param_attr.ParamAttr(
                name="fc_0.w_0", initializer=fluid.initializer.Uniform(-stdv, stdv)
            ),
            bias_attr=ParamAttr(name="fc_0.b_0"),
        )

    def conv_bn_layer(
        self, input, num_filters, filter_size, stride=1, groups=1, act=None, name=None, data_format="NCHW"
    ):
        conv = fluid.layers.conv2d(
            input=input,
            num_filters=num_filters,
            filter_size=filter_size,
            stride=stride,
            padding=(filter_size - 1) // 2,
            groups=groups,
            act=None,
            param_attr=ParamAttr(name=name + "_weights"),
            bias_attr=False,
            name=name + ".conv2d.output.1",
            data_format=data_format,
        )
        bn_name = "bn_" + name if name == "conv1" else "bn" + name[3:]
        return fluid.layers.batch_norm(
            input=conv,
            act=act,
            name=bn_name + ".output.1",
            param_attr=ParamAttr(name=bn_name + "_scale"),
            bias_attr=ParamAttr(bn_name + "_offset"),
            moving_mean_name=bn_name + "_mean",
            moving_variance_name=bn_name + "_variance",
            data_layout=data_format,
        )

    def shortcut(self, input, ch_out, stride, name, data_format):
        ch_in = input.shape[1] if data_format == "NCHW" else input.shape[-1]
        if ch_in != ch_out or stride != 1:
            return self.conv_bn_layer(input, ch_out, 1, stride, name=name, data_format=data_format)
        return input

    def bottleneck_block(self, input, num_filters, stride, name, data_format):
        layout = {"data_format": data_format}
        conv0 = self.conv_bn_layer(input, num_filters, 1, act="relu", name=name + "_branch2a", **layout)
        conv1 = self.conv_bn_layer(
            conv0, num_filters, 3, stride=stride, act="relu", name=name + "_branch2b", **layout
        )
        conv2 = self.conv_bn_layer(conv1, num_filters * 4, 1, act=None, name=name + "_branch2c", **layout)
        short = self.shortcut(input, num_filters * 4, stride, name + "_branch1", data_format)
        return fluid.layers.elementwise_add(x=short, y=conv2, act="relu", name=name + ".add.output.5")

    def basic_block(self, input, num_filters, stride, name, data_format):
        layout = {"data_format": data_format}
        conv0 = self.conv_bn_layer(
            input, num_filters, 3, stride=stride, act="relu", name=name + "_branch2a", **layout
        )
        conv1 = self.conv_bn_layer(conv0, num_filters, 3, act=None, name=name + "_branch2b", **layout)
        short = self.shortcut(input, num_filters, stride, name + "_branch1", data_format)
        return fluid.layers.elementwise_add(x=short, y=conv1, act="relu")


def ResNet18():
    return ResNet(layers=18)


def ResNet50():
    return ResNet(layers=50)


assert paddle.fluid is fluid
