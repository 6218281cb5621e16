"""WMT14: readers of (<s> source <e>, <s> target, target <e>), as word numbers.

The archive is looked for in `<cache>/dataset/wmt14`; if it is missing, generated sentences are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import translation
from argosy.engine.data.corpora.sources import WMT14
from argosy.framework.variant import variant

__all__ = ["gen", "get_dict", "test", "train"]


def _reader(split: str, dict_size: int) -> Callable[[], Iterator[Any]]:
    size = translation.checked(dict_size)
    return lambda: translation.wmt14_samples(WMT14.file(), split, size)


@variant(_reader, "train")
def train() -> Any:
    """The sentences to train, with the first `dict_size` words of the dictionaries."""


@variant(_reader, "test")
def test() -> Any:
    """The sentences to test."""


@variant(_reader, "gen")
def gen() -> Any:
    """The sentences to generate translations of."""


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """(source, target): number to word, or word to number if `reverse` is False."""
    source, target = translation.wmt14_dicts(WMT14.file(), dict_size)
    if not reverse:
        return source, target
    return {n: w for w, n in source.items()}, {n: w for w, n in target.items()}
