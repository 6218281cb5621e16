"""VGG: "Very Deep Convolutional Networks for Large-Scale Image Recognition", arXiv:1409.1556, table 1."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy import nn
from argosy.tensor import flatten
from argosy.vision.models.pretrained import check_not_pretrained

_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Per stage; a stage ends with a pooling."""
_CHANNELS = (64, 128, 256, 512, 512)


class VGG(nn.Layer):
    """Features of an image (`make_features`), and three linear layers; without those if `num_classes` is 0."""

    def __init__(self, features: nn.Layer, num_classes: int = 1000) -> None:
        super().__init__()
        self.features, self.num_classes = features, num_classes
        self.avgpool = nn.AdaptiveAvgPool2D((7, 7))
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Linear(512 * 7 * 7, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, num_classes),
            )

    def forward(self, x: Any) -> Any:
        x = self.avgpool(self.features(x))
        return self.classifier(flatten(x, 1)) if self.num_classes > 0 else x


def make_features(depth: int, batch_norm: bool) -> nn.Layer:
    """The convolutions of a VGG of this depth."""
    layers: list[nn.Layer] = []
    inplanes = 3
    for count, planes in zip(_CONVOLUTIONS[depth], _CHANNELS, strict=True):
        for _ in range(count):
            layers.append(nn.Conv2D(inplanes, planes, 3, padding=1))
            layers += [nn.BatchNorm2D(planes), nn.ReLU()] if batch_norm else [nn.ReLU()]
            inplanes = planes
        layers.append(nn.MaxPool2D(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


def vgg11(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """VGG of 11 layers."""
    return _vgg(11, pretrained, batch_norm, kwargs)


def vgg13(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """VGG of 13 layers."""
    return _vgg(13, pretrained, batch_norm, kwargs)


def vgg16(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """VGG of 16 layers."""
    return _vgg(16, pretrained, batch_norm, kwargs)


def vgg19(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    """VGG of 19 layers."""
    return _vgg(19, pretrained, batch_norm, kwargs)


def _vgg(depth: int, pretrained: bool, batch_norm: bool, options: dict[str, Any]) -> VGG:
    check_not_pretrained(f"vgg{depth}", pretrained)
    return VGG(make_features(depth, batch_norm), **options)
