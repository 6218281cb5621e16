"""Data sets as readers. They are read from the cache folder and never from the network."""

# SPDX-License-Identifier: Apache-2.0
from argosy.dataset import flowers, image, mnist
from argosy.framework.missing import missing

__all__ = ["flowers", "image", "mnist"]

__getattr__ = missing(__name__, globals())
