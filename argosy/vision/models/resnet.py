"""ResNet: "Deep Residual Learning for Image Recognition", arXiv:1512.03385, tables 1 and 5."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy import nn
from argosy.engine.errors import ConfigError
from argosy.tensor import flatten
from argosy.vision.models.pretrained import check_not_pretrained


class _Block(nn.Layer):
    """x + f(x), where the shortcut is a 1 x 1 convolution if the shape changes."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int) -> None:
        super().__init__()
        out = planes * self.expansion
        self.residual = self._residual(inplanes, planes, stride)
        self.downsample = _conv_bn(inplanes, out, 1, stride) if stride != 1 or inplanes != out else None
        self.relu = nn.ReLU()

    def _residual(self, inplanes: int, planes: int, stride: int) -> nn.Layer:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.residual(x) + shortcut)


class BasicBlock(_Block):
    """Two 3 x 3 convolutions."""

    def _residual(self, inplanes: int, planes: int, stride: int) -> nn.Layer:
        first = _conv_bn(inplanes, planes, 3, stride, padding=1)
        return nn.Sequential(first, nn.ReLU(), _conv_bn(planes, planes, 3, padding=1))


class BottleneckBlock(_Block):
    """1 x 1, 3 x 3 and 1 x 1 convolutions; the middle one has the stride."""

    expansion = 4

    def _residual(self, inplanes: int, planes: int, stride: int) -> nn.Layer:
        return nn.Sequential(
            _conv_bn(inplanes, planes, 1),
            nn.ReLU(),
            _conv_bn(planes, planes, 3, stride, padding=1),
            nn.ReLU(),
            _conv_bn(planes, planes * self.expansion, 1),
        )


_LAYERS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class ResNet(nn.Layer):
    """A ResNet of `depth` layers of these blocks; without the last layers if num_classes is 0 or with_pool False."""

    def __init__(
        self, Block: type[_Block], depth: int, num_classes: int = 1000, with_pool: bool = True
    ) -> None:
        super().__init__()
        if depth not in _LAYERS:
            raise ConfigError(f"ResNet: depth={depth}; use one of {', '.join(map(str, _LAYERS))}")
        self.num_classes, self.with_pool = num_classes, with_pool
        self.stem = nn.Sequential(
            _conv_bn(3, 64, 7, 2, padding=3), nn.ReLU(), nn.MaxPool2D(kernel_size=3, stride=2, padding=1)
        )
        blocks: list[nn.Layer] = []
        inplanes = 64
        for stage, count in enumerate(_LAYERS[depth]):
            for number in range(count):
                planes = 64 * 2**stage
                blocks.append(Block(inplanes, planes, 2 if stage and number == 0 else 1))
                inplanes = planes * Block.expansion
        self.blocks = nn.Sequential(*blocks)
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((1, 1))
        if num_classes > 0:
            self.fc = nn.Linear(512 * Block.expansion, num_classes)

    def forward(self, x: Any) -> Any:
        x = self.blocks(self.stem(x))
        x = self.avgpool(x) if self.with_pool else x
        return self.fc(flatten(x, 1)) if self.num_classes > 0 else x


def resnet18(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """ResNet of 18 layers."""
    return _resnet(BasicBlock, 18, pretrained, kwargs)


def resnet34(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """ResNet of 34 layers."""
    return _resnet(BasicBlock, 34, pretrained, kwargs)


def resnet50(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """ResNet of 50 layers."""
    return _resnet(BottleneckBlock, 50, pretrained, kwargs)


def resnet101(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """ResNet of 101 layers."""
    return _resnet(BottleneckBlock, 101, pretrained, kwargs)


def resnet152(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """ResNet of 152 layers."""
    return _resnet(BottleneckBlock, 152, pretrained, kwargs)


def _resnet(block: type[_Block], depth: int, pretrained: bool, options: dict[str, Any]) -> ResNet:
    check_not_pretrained(f"resnet{depth}", pretrained)
    return ResNet(block, depth, **options)


def _conv_bn(inplanes: int, planes: int, size: int, stride: int = 1, padding: int = 0) -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(inplanes, planes, size, stride=stride, padding=padding, bias_attr=False),
        nn.BatchNorm2D(planes),
    )
