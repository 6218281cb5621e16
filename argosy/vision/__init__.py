"""paddle.vision: transforms, data sets and models of images; which form images are loaded in."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.modules import load_on_use
from argosy.vision.image import get_image_backend, image_load, set_image_backend

_DATASETS = [
    "Cifar10",
    "Cifar100",
    "DatasetFolder",
    "FashionMNIST",
    "Flowers",
    "ImageFolder",
    "MNIST",
    "VOC2012",
]
_MODELS = [
    *("LeNet", "MobileNetV1", "MobileNetV2", "ResNet", "VGG", "mobilenet_v1", "mobilenet_v2"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19"),
]

__all__ = [  # noqa: PLE0604  (names of lists)
    "datasets",
    "get_image_backend",
    "image_load",
    "models",
    "set_image_backend",
    "transforms",
    *_DATASETS,
    *_MODELS,
]

__getattr__ = load_on_use(
    globals(),
    {name: f"{__name__}.{name}" for name in ("datasets", "models", "transforms")}
    | dict.fromkeys(_DATASETS, f"{__name__}.datasets")
    | dict.fromkeys(_MODELS, f"{__name__}.models"),
    missing(__name__, globals()),
)
