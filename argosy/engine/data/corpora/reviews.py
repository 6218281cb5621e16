"""Film reviews with a sentiment: IMDB (a tar archive) and NLTK's movie_reviews (a zip archive).

aclImdb/train/pos/0_9.txt                movie_reviews/neg/cv000_29416.txt
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import re
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from argosy.engine.data.corpora.archives import members
from argosy.engine.data.corpora.vocabulary import by_frequency
from argosy.engine.errors import CorruptFileError

UNKNOWN = "<unk>"
_PUNCTUATION = string.punctuation.encode("latin-1")


def imdb_documents(path: Path, pattern: str) -> Iterator[list[bytes]]:
    """The words of the reviews whose file name begins with `pattern`: lower case, without punctuation."""
    return (_words(text) for _, text in members(path, f"{pattern}.*"))


def imdb_dict(path: Path, pattern: str, cutoff: int) -> dict[bytes | str, int]:
    """Words (bytes, as in Paddle) that occur more than `cutoff` times, and "<unk>" (a str) as the last."""
    words = by_frequency(itertools.chain.from_iterable(imdb_documents(path, pattern)), cutoff)
    numbered: dict[bytes | str, int] = dict(words.items())
    return numbered | {UNKNOWN: len(numbered)}


def imdb_samples(path: Path, split: str, word_idx: dict[bytes | str, int]) -> Iterator[tuple[list[int], int]]:
    """(word numbers, label): the positive reviews with label 0, then the negative ones with label 1."""
    unknown = word_idx[UNKNOWN]
    negative: list[tuple[list[int], int]] = []  # the archive is decompressed once, in its own order
    for name, text in members(path, rf"aclImdb/{split}/(pos|neg)/.*\.txt"):
        numbers = [word_idx.get(word, unknown) for word in _words(text)]
        if "/pos/" in name:
            yield numbers, 0
        else:
            negative.append((numbers, 1))
    yield from negative


def _words(text: bytes) -> list[bytes]:
    return text.rstrip(b"\n\r").translate(None, _PUNCTUATION).lower().split()


def movie_reviews(path: Path) -> list[tuple[list[str], int]]:
    """(words, label): negative reviews (0) and positive ones (1) alternate."""
    by_label: list[list[tuple[list[str], int]]] = [[], []]
    for name, text in members(path, r"movie_reviews/(neg|pos)/.*\.txt"):
        words = re.findall(r"\w+|[^\w\s]+", text.decode("latin-1").lower())
        label = int("/pos/" in name)
        by_label[label].append((words, label))
    if len(by_label[0]) != len(by_label[1]) or not by_label[0]:
        raise CorruptFileError(
            f"{path} has {len(by_label[0])} negative and {len(by_label[1])} positive reviews, which should be as many; "
            "use the original file"
        )
    return list(itertools.chain.from_iterable(zip(*by_label, strict=True)))


def movie_review_dict(reviews: list[tuple[list[str], int]]) -> dict[str, int]:
    """All words, the most frequent first."""
    counts = Counter(word for words, _ in reviews for word in words)
    return {word: number for number, (word, _) in enumerate(counts.most_common())}
