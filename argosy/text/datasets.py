"""paddle.text.datasets: the data sets of `argosy.dataset` in memory, for `argosy.io.DataLoader`.

A data set is read from the given files, else from `<cache>/dataset`; if the files are missing there, generated data is
used. Nothing is downloaded: `download` only says whether files may be left out.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from argosy.engine.data.corpora import (
    conll05,
    imikolov,
    movielens,
    reviews,
    sources,
    translation,
    uci_housing,
)
from argosy.engine.errors import UnknownNameError
from argosy.framework.missing import missing

__all__ = ["WMT14", "WMT16", "Conll05st", "Imdb", "Imikolov", "Movielens", "UCIHousing"]


class _Samples(Dataset[tuple[Any, ...]]):
    """Samples in memory; each field is an array."""

    def __init__(self, samples: Iterable[Iterable[Any]]) -> None:
        self.data = list(samples)

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(np.array(field) for field in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)


class Imdb(_Samples):
    """Reviews: (word numbers, [0 for positive or 1])."""

    def __init__(
        self, data_file: str | None = None, mode: str = "train", cutoff: int = 150, download: bool = True
    ) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test"))
        path = sources.IMDB.file(data_file, download)
        self.word_idx = reviews.imdb_dict(path, r"aclImdb/(train|test)/(pos|neg)/.*\.txt$", cutoff)
        super().__init__((words, [label]) for words, label in reviews.imdb_samples(path, mode, self.word_idx))


class Imikolov(_Samples):
    """The Penn Treebank: `window_size` following words (NGRAM), or (sentence, next words) (SEQ)."""

    def __init__(
        self,
        data_file: str | None = None,
        data_type: str = "NGRAM",
        window_size: int = -1,
        mode: str = "train",
        min_word_freq: int = 50,
        download: bool = True,
    ) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test"))
        self.data_type = _one_of("data_type", data_type.upper(), ("NGRAM", "SEQ"))
        self.window_size, self.min_word_freq = window_size, min_word_freq
        path = sources.IMIKOLOV.file(data_file, download)
        self.word_idx = imikolov.word_dict(path, min_word_freq)
        super().__init__(imikolov.samples(path, self.mode, self.word_idx, window_size, self.data_type))


class Movielens(_Samples):
    """Ratings: user, gender, age, job, film, genres, words of the title, rating; each an array."""

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        test_ratio: float = 0.1,
        rand_seed: int = 0,
        download: bool = True,
    ) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test"))
        data = movielens.MovieLens(sources.MOVIELENS.file(data_file, download))
        self.movie_info, self.user_info = data.movies, data.users
        self.movie_title_dict, self.categories_dict = data.title_words, data.categories
        samples = data.samples(self.mode == "test", test_ratio, rand_seed)
        super().__init__([[[f] if isinstance(f, int) else f for f in sample] for sample in samples])


class UCIHousing(_Samples):
    """Houses: (13 normalised features, [price]), float32."""

    def __init__(self, data_file: str | None = None, mode: str = "train", download: bool = True) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test"))
        train, test = uci_housing.load(sources.UCI_HOUSING.file(data_file, download))
        rows = (train if self.mode == "train" else test).astype(np.float32)
        super().__init__((row[:-1], row[-1:]) for row in rows)


class WMT14(_Samples):
    """Translations: (<s> source <e>, <s> target, target <e>)."""

    def __init__(
        self, data_file: str | None = None, mode: str = "train", dict_size: int = -1, download: bool = True
    ) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test", "gen"))
        self.dict_size = translation.checked(dict_size)
        path = sources.WMT14.file(data_file, download)
        self.src_dict, self.trg_dict = translation.wmt14_dicts(path, dict_size)
        super().__init__(translation.wmt14_samples(path, self.mode, dict_size))

    def get_dict(self, reverse: bool = False) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """(source, target): word to number, or number to word if `reverse`."""
        return _reversed(self.src_dict, reverse), _reversed(self.trg_dict, reverse)


class WMT16(_Samples):
    """Translations between English and German: (<s> source <e>, <s> target, target <e>)."""

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        src_dict_size: int = -1,
        trg_dict_size: int = -1,
        lang: str = "en",
        download: bool = True,
    ) -> None:
        self.mode = _one_of("mode", mode.lower(), ("train", "test", "val"))
        self.lang = _one_of("lang", lang, ("en", "de"))
        path = sources.WMT16.file(data_file, download)
        self.src_dict = translation.wmt16_dict(path, lang, src_dict_size)
        self.trg_dict = translation.wmt16_dict(path, "de" if lang == "en" else "en", trg_dict_size)
        super().__init__(translation.wmt16_samples(path, self.mode, self.src_dict, self.trg_dict, lang))

    def get_dict(self, lang: str, reverse: bool = False) -> dict[Any, Any]:
        """The dictionary of a language: word to number, or number to word if `reverse`."""
        chosen = _one_of("lang", lang, ("en", "de"))
        return _reversed(self.src_dict if chosen == self.lang else self.trg_dict, reverse)


class Conll05st(_Samples):
    """Semantic roles: words, five words around the verb, verb, mark of these words, tags."""

    def __init__(
        self,
        data_file: str | None = None,
        word_dict_file: str | None = None,
        verb_dict_file: str | None = None,
        target_dict_file: str | None = None,
        emb_file: str | None = None,
        download: bool = True,
    ) -> None:
        source = sources.CONLL05
        path = source.file(data_file, download)
        self.word_dict = conll05.load_dict(source.file(word_dict_file, download, "wordDict.txt"))
        self.predicate_dict = conll05.load_dict(source.file(verb_dict_file, download, "verbDict.txt"))
        self.label_dict = conll05.load_label_dict(source.file(target_dict_file, download, "targetDict.txt"))
        self._embedding = (emb_file, download)
        dicts = self.get_dict()
        super().__init__(proposition.sample(*dicts) for proposition in conll05.propositions(path))

    def get_dict(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """(words, verbs, tags), each to its number."""
        return self.word_dict, self.predicate_dict, self.label_dict

    def get_embedding(self) -> str:
        """The path of the file of word vectors: 16 bytes, then 32 float32 values for each word."""
        return str(sources.CONLL05.file(*self._embedding, "emb"))


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UnknownNameError(f"{name}={value!r}; use one of {', '.join(allowed)}")
    return value


def _reversed(words: dict[str, int], reverse: bool) -> dict[Any, Any]:
    return {number: word for word, number in words.items()} if reverse else words


__getattr__ = missing(__name__, globals())
