"""paddle.vision.datasets: images with labels, for `argosy.io.DataLoader`.

A data set is read from the given files, else from `<cache>/dataset`; if the files are missing there, generated images
are used. Nothing is downloaded: `download` only says whether files may be left out.
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.vision.datasets.archive_datasets import MNIST, VOC2012, Cifar10, Cifar100, FashionMNIST, Flowers
from argosy.vision.datasets.folder import DatasetFolder, ImageFolder

__all__ = [
    "MNIST",
    "VOC2012",
    "Cifar10",
    "Cifar100",
    "DatasetFolder",
    "FashionMNIST",
    "Flowers",
    "ImageFolder",
]

__getattr__ = missing(__name__, globals())
