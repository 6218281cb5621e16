"""paddle.text: data sets of texts."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.modules import load_on_use

_DATASETS = ["Conll05st", "Imdb", "Imikolov", "Movielens", "UCIHousing", "WMT14", "WMT16"]

__all__ = ["datasets", *_DATASETS]  # noqa: PLE0604  (names of a list)

__getattr__ = load_on_use(
    globals(), dict.fromkeys(__all__, f"{__name__}.datasets"), missing(__name__, globals())
)
