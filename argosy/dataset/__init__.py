"""Data sets as readers. They are read from the cache folder; if files are missing, generated data is used."""

# SPDX-License-Identifier: Apache-2.0
from argosy.dataset import flowers, image, mnist
from argosy.framework.missing import missing
from argosy.modules import load_on_use

_LOADED_ON_USE = [
    "cifar",
    "common",
    "conll05",
    "imdb",
    "imikolov",
    "movielens",
    "sentiment",
    "uci_housing",
    "voc2012",
    "wmt14",
    "wmt16",
]

__all__ = ["flowers", "image", "mnist", *_LOADED_ON_USE]  # noqa: PLE0604  (names of a list)

__getattr__ = load_on_use(
    globals(), {name: f"{__name__}.{name}" for name in _LOADED_ON_USE}, missing(__name__, globals())
)
