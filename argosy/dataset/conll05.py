"""CoNLL-2005: a reader of nine sequences: words, five words around the verb, verb, mark of these words, tags.

The files are looked for in `<cache>/dataset/conll05st`; if they are missing, generated sentences are used. Only the
test set of the original is public.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data.corpora import conll05
from argosy.engine.data.corpora.sources import CONLL05

__all__ = ["get_dict", "get_embedding", "test"]


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """(words, verbs, tags), each to its number."""
    folder = CONLL05.folder()
    words, verbs = (conll05.load_dict(folder / name) for name in ("wordDict.txt", "verbDict.txt"))
    return words, verbs, conll05.load_label_dict(folder / "targetDict.txt")


def get_embedding() -> str:
    """The path of a file of word vectors: 16 bytes, then 32 float32 values for each word."""
    return str(CONLL05.file(name="emb"))


def test() -> Callable[[], Iterator[Any]]:
    """The sentences, once for each of their verbs."""
    dicts, path = get_dict(), CONLL05.file()
    return lambda: (proposition.sample(*dicts) for proposition in conll05.propositions(path))
