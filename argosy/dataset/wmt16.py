"""WMT16, English and German: readers of (<s> source <e>, <s> target, target <e>), as word numbers.

The archive is looked for in `<cache>/dataset/wmt16`; if it is missing, generated sentences are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import translation
from argosy.engine.data.corpora.sources import WMT16
from argosy.framework.variant import variant

__all__ = ["get_dict", "test", "train", "validation"]


def _reader(
    split: str, src_dict_size: int, trg_dict_size: int, src_lang: str = "en"
) -> Callable[[], Iterator[Any]]:
    path, other = WMT16.file(), "de" if src_lang == "en" else "en"
    dicts = (
        translation.wmt16_dict(path, src_lang, src_dict_size),
        translation.wmt16_dict(path, other, trg_dict_size),
    )
    return lambda: translation.wmt16_samples(path, split, *dicts, src_lang)


@variant(_reader, "train")
def train() -> Any:
    """The sentences to train."""


@variant(_reader, "test")
def test() -> Any:
    """The sentences to test."""


@variant(_reader, "val")
def validation() -> Any:
    """The sentences to validate."""


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """The dictionary of a language: word to number, or number to word if `reverse`."""
    words = translation.wmt16_dict(WMT16.file(), lang, dict_size)
    return {n: w for w, n in words.items()} if reverse else words
