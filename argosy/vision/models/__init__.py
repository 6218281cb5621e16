"""paddle.vision.models: networks as layers; their weights are initialized by the startup program."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.vision.models.lenet import LeNet
from argosy.vision.models.mobilenet import MobileNetV1, MobileNetV2, mobilenet_v1, mobilenet_v2
from argosy.vision.models.resnet import ResNet, resnet18, resnet34, resnet50, resnet101, resnet152
from argosy.vision.models.vgg import VGG, vgg11, vgg13, vgg16, vgg19

__all__ = [
    "VGG",
    "LeNet",
    "MobileNetV1",
    "MobileNetV2",
    "ResNet",
    "mobilenet_v1",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
]

__getattr__ = missing(__name__, globals())
