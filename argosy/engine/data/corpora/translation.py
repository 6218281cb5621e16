"""Pairs of sentences, "source<tab>target" per line: WMT14 (with dictionaries) and WMT16 (English and German)."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from argosy.engine.data.corpora.archives import lines
from argosy.engine.data.corpora.vocabulary import most_frequent
from argosy.engine.errors import ConfigError, UnknownNameError

BEGIN, END, UNKNOWN = "<s>", "<e>", "<unk>"
MARKS = (BEGIN, END, UNKNOWN)
UNKNOWN_ID = 2
LONGEST = 80
"""WMT14 leaves out sentences with more words."""
WMT16_WORDS = {"en": 11250, "de": 19220}

Ids: TypeAlias = tuple[list[int], list[int], list[int]]
"""(<s> source <e>, <s> target, target <e>)."""


def _pairs(path: Path, pattern: str) -> Iterator[tuple[list[str], list[str]]]:
    for line in lines(path, pattern):
        fields = line.split("\t")
        if len(fields) == 2:
            yield fields[0].split(), fields[1].split()


def _ids(
    source: list[str], target: list[str], source_dict: dict[str, int], target_dict: dict[str, int]
) -> Ids:
    begin, end = source_dict[BEGIN], source_dict[END]
    source_ids = [source_dict.get(word, UNKNOWN_ID) for word in source]
    target_ids = [target_dict.get(word, UNKNOWN_ID) for word in target]
    return [begin, *source_ids, end], [begin, *target_ids], [*target_ids, end]


def wmt14_dicts(path: Path, size: int) -> tuple[dict[str, int], dict[str, int]]:
    """(source, target): the first `size` words of the archive's dictionaries."""
    source, target = (
        {word: number for number, word in enumerate(lines(path, rf".*{name}\.dict")[: checked(size)])}
        for name in ("src", "trg")
    )
    return source, target


def wmt14_samples(path: Path, split: str, size: int) -> Iterator[Ids]:
    """The sentences of train, test or gen of at most 80 words."""
    dicts = wmt14_dicts(path, size)
    for source, target in _pairs(path, rf".*{split}/{split}"):
        if len(source) + 2 <= LONGEST and len(target) <= LONGEST:
            yield _ids(source, target, *dicts)


def wmt16_dict(path: Path, language: str, size: int) -> dict[str, int]:
    """<s>, <e>, <unk> and the most frequent words of the training sentences, `size` in all."""
    if language not in WMT16_WORDS:
        raise UnknownNameError(f"WMT16 has no language {language!r}; use 'en' or 'de'")
    column = 0 if language == "en" else 1
    words = (word for pair in _pairs(path, "wmt16/train") for word in pair[column])
    return most_frequent(words, min(checked(size), WMT16_WORDS[language]), MARKS)


def wmt16_samples(
    path: Path, split: str, source_dict: dict[str, int], target_dict: dict[str, int], language: str
) -> Iterator[Ids]:
    """The sentences of train, test or val, from `language` to the other."""
    for pair in _pairs(path, f"wmt16/{split}"):
        source, target = pair if language == "en" else pair[::-1]
        yield _ids(source, target, source_dict, target_dict)


def checked(size: int) -> int:
    """The size of a dictionary, at least that of the marks."""
    if size < len(MARKS):
        raise ConfigError(
            f"a dictionary of {size} words; give a size of {len(MARKS)} or more: it begins with {MARKS}"
        )
    return size
