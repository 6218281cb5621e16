"""MobileNetV1 (arXiv:1704.04861, table 1) and MobileNetV2 (arXiv:1801.04381, table 2)."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy import nn
from argosy.tensor import flatten
from argosy.vision.models.pretrained import check_not_pretrained

_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""(channels, stride) of each depthwise separable convolution."""
_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""(expansion, channels, blocks, stride of the first) of each stage."""


class _Classifier(nn.Layer):
    """`features`, pooled, and a linear layer; without it if num_classes is 0, without both if with_pool is False."""

    def __init__(
        self, features: nn.Layer, planes: int, num_classes: int, with_pool: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.features, self.num_classes, self.with_pool = features, num_classes, with_pool
        if with_pool:
            self.pool = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            linear = nn.Linear(planes, num_classes)
            self.classifier = nn.Sequential(nn.Dropout(dropout), linear) if dropout else linear

    def forward(self, x: Any) -> Any:
        x = self.features(x)
        x = self.pool(x) if self.with_pool else x
        return self.classifier(flatten(x, 1)) if self.num_classes > 0 else x


class MobileNetV1(_Classifier):
    """Depthwise separable convolutions; `scale` multiplies the channels."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        inplanes = int(32 * scale)
        layers = [_conv_bn(3, inplanes, 3, stride=2)]
        for channels, stride in _V1:
            planes = int(channels * scale)
            layers += [
                _conv_bn(inplanes, inplanes, 3, stride, groups=inplanes),
                _conv_bn(inplanes, planes, 1),
            ]
            inplanes = planes
        super().__init__(nn.Sequential(*layers), inplanes, num_classes, with_pool)
        self.scale = scale


class InvertedResidual(nn.Layer):
    """Expand, a depthwise convolution, project; a shortcut if the shape stays the same."""

    def __init__(self, inplanes: int, planes: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inplanes * expansion
        expand = [_conv_bn(inplanes, hidden, 1, act=nn.ReLU6)] if expansion != 1 else []
        depthwise = _conv_bn(hidden, hidden, 3, stride, groups=hidden, act=nn.ReLU6)
        self.conv = nn.Sequential(*expand, depthwise, _conv_bn(hidden, planes, 1, act=None))
        self.has_shortcut = stride == 1 and inplanes == planes

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


class MobileNetV2(_Classifier):
    """Inverted residuals; `scale` multiplies the channels, which are rounded to multiples of 8."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        inplanes = _divisible(32 * scale)
        layers: list[nn.Layer] = [_conv_bn(3, inplanes, 3, stride=2, act=nn.ReLU6)]
        for expansion, channels, count, first_stride in _V2:
            planes = _divisible(channels * scale)
            for number in range(count):
                stride = first_stride if number == 0 else 1
                layers.append(InvertedResidual(inplanes, planes, stride, expansion))
                inplanes = planes
        last = _divisible(1280 * max(1.0, scale))
        layers.append(_conv_bn(inplanes, last, 1, act=nn.ReLU6))
        super().__init__(nn.Sequential(*layers), last, num_classes, with_pool, dropout=0.2)
        self.scale = scale


def mobilenet_v1(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV1:
    """MobileNetV1."""
    check_not_pretrained("mobilenet_v1", pretrained)
    return MobileNetV1(scale=scale, **kwargs)


def mobilenet_v2(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV2:
    """MobileNetV2."""
    check_not_pretrained("mobilenet_v2", pretrained)
    return MobileNetV2(scale=scale, **kwargs)


def _conv_bn(
    inplanes: int,
    planes: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Layer] | None = nn.ReLU,
) -> nn.Layer:
    convolution = nn.Conv2D(
        inplanes, planes, size, stride=stride, padding=size // 2, groups=groups, bias_attr=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2D(planes), *([act()] if act else []))


def _divisible(channels: float, by: int = 8) -> int:
    """The nearest multiple of 8, but not less than nine tenths of the channels."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded
