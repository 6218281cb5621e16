"""The Penn Treebank of Mikolov's simple-examples: a sentence per line, as n-grams or as sequences.

simple-examples.tgz    ./simple-examples/data/ptb.{train,valid,test}.txt
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argosy.engine.data.corpora.archives import lines
from argosy.engine.data.corpora.vocabulary import by_frequency
from argosy.engine.errors import ConfigError

BEGIN, END, UNKNOWN = "<s>", "<e>", "<unk>"


def sentences(path: Path, split: str) -> list[list[str]]:
    """The words of each sentence of train, valid or test."""
    return [line.split() for line in lines(path, rf"(\./)?simple-examples/data/ptb\.{split}\.txt")]


def word_dict(path: Path, min_word_freq: int) -> dict[str, int]:
    """Words of train and valid that occur more than `min_word_freq` times; "<unk>" is the last."""
    texts = [*sentences(path, "train"), *sentences(path, "valid")]
    words = by_frequency((w for text in texts for w in (*text, BEGIN, END) if w != UNKNOWN), min_word_freq)
    return {**words, UNKNOWN: len(words)}


def samples(
    path: Path, split: str, word_idx: dict[str, int], n: int, data_type: str
) -> Iterator[tuple[Any, ...]]:
    """NGRAM: every n following words of "<s> sentence <e>". SEQ: (<s> sentence, sentence <e>), with n > 0 only
    sentences of fewer than n words."""
    unknown = word_idx[UNKNOWN]
    if data_type == "NGRAM" and n < 1:
        raise ConfigError(f"an n-gram of {n} words; give n (window_size) of 1 or more")
    for text in sentences(path, split):
        begin, *words, end = (word_idx.get(word, unknown) for word in (BEGIN, *text, END))
        if data_type == "NGRAM":
            whole = [begin, *words, end]
            yield from (tuple(whole[i : i + n]) for i in range(len(whole) - n + 1))
        elif n <= 0 or len(words) < n:
            yield [begin, *words], [*words, end]
