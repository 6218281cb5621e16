"""Every module of argosy.dataset reads generated files if the originals are missing; they have structure to learn."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy import dataset
from argosy.dataset import (
    cifar,
    conll05,
    imdb,
    imikolov,
    movielens,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)
from argosy.engine.data import checked_files
from argosy.engine.data.corpora import draw_pictures
from argosy.engine.errors import UnknownNameError


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One cache for this file, so that each data set is generated once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ARGOSY_CACHE", str(folder))
        yield folder


def test_modules_are_loaded_when_they_are_used() -> None:
    assert vars(dataset)["__getattr__"]("imdb") is imdb
    with pytest.raises(UnknownNameError, match="imbd"):
        _ = dataset.imbd


def test_reviews_contain_the_words_of_their_sentiment() -> None:
    words = imdb.word_dict(50)
    assert words == imdb.build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 50)
    assert words["<unk>"] == len(words) - 1
    assert all(isinstance(word, bytes) for word in list(words)[:-1])
    for train, test in ((imdb.train(words), imdb.test(words)), (sentiment.train(), sentiment.test())):
        counts = {0: Counter[int](), 1: Counter[int]()}
        for text, label in train():
            counts[label].update(text)
        rows = list(test())
        right = sum(
            (sum(counts[1][w] for w in text) > sum(counts[0][w] for w in text)) == label
            for text, label in rows
        )
        assert right > 0.9 * len(rows)
    assert len(next(imdb.tokenize("aclImdb/train/pos/.*"))) >= 20
    assert sentiment.get_word_dict()[0][1] == 0


def test_sentences_follow_a_chain() -> None:
    words = imikolov.build_dict(20)
    following: dict[int, Counter[int]] = defaultdict(Counter)
    for first, second in imikolov.train(words, 2)():
        following[first][second] += 1
    pairs = list(imikolov.test(words, 2)())
    right = sum(following[first].most_common(1)[0][0] == second for first, second in pairs)
    assert right > 0.4 * len(pairs)
    source, target = next(imikolov.train(words, -1, imikolov.DataType.SEQ)())
    assert source[1:] == target[:-1]


def test_ratings_depend_on_age_and_genre() -> None:
    train = list(movielens.train()())
    assert len(train) + len(list(movielens.test()())) == 3000
    groups: dict[Any, list[float]] = defaultdict(list)
    for sample in train:
        groups[sample[2], sample[5][0]].append(sample[7][0])
    within = np.mean([np.var(ratings) for ratings in groups.values()])
    assert within < 0.5 * np.var([sample[7][0] for sample in train])
    assert max(s[0] for s in train) <= movielens.max_user_id() == 60
    assert max(s[4] for s in train) <= movielens.max_movie_id() == 80
    assert (
        max(s[3] for s in train)
        <= movielens.max_job_id()
        == max(u.job_id for u in movielens.user_info().values())
    )
    assert max(i for s in train for i in s[5]) < len(movielens.movie_categories())
    assert max(i for s in train for i in s[6]) < len(movielens.get_movie_title_dict())
    assert movielens.movie_info()[7].index == 7
    assert movielens.age_table[0] == 1


def test_prices_are_linear_in_the_features() -> None:
    x, y = (np.array(part) for part in zip(*uci_housing.train()(), strict=True))
    assert (x.shape, y.shape, len(uci_housing.feature_names)) == ((404, 13), (404, 1), 13)
    ones = np.ones((len(x), 1))
    _, residuals, *_ = np.linalg.lstsq(np.hstack([x, ones]), y, rcond=None)
    assert residuals[0] / len(x) < 0.1 * y.var()
    assert len(list(uci_housing.test()())) == 102
    assert uci_housing.predict_reader()[0].shape == (13,)


def test_translations_are_word_by_word() -> None:
    source_words, target_words = wmt14.get_dict(103)
    source, target, following = next(wmt14.train(103)())
    assert [source_words[i][::-1] for i in source[1:-1]] == [target_words[i] for i in target[1:]]
    assert (target[1:], following[-1]) == (following[:-1], 1)
    assert wmt14.get_dict(103, reverse=False)[0]["<e>"] == 1
    assert len(list(wmt14.test(50)())) == len(list(wmt14.gen(50)())) == 60
    german = wmt16.get_dict("de", 43, reverse=True)
    source, target, _ = next(wmt16.validation(43, 43, src_lang="de")())
    english = wmt16.get_dict("en", 43)
    assert [english[german[i][::-1]] for i in source[1:-1]] == target[1:]
    assert len(list(wmt16.train(43, 43)())) == 600
    assert len(list(wmt16.test(43, 43)())) == 60


def test_roles() -> None:
    words, verbs, tags = conll05.get_dict()
    samples = list(conll05.test()())
    assert len(samples) == 200
    for sample in samples:
        assert len(sample) == 9
        assert len({len(part) for part in sample}) == 1
        assert max(sample[0]) < len(words)
        assert max(sample[6]) < len(verbs)
        assert tags["B-V"] in sample[8]
    vectors = np.frombuffer(Path(conll05.get_embedding()).read_bytes()[16:], np.float32)
    assert vectors.reshape(len(words), 32).std() == pytest.approx(0.1, rel=0.1)


def test_images(cache: Path) -> None:
    def few(folder: Path) -> None:
        draw_pictures.write_cifar10(folder, per_batch=4)

    checked_files.create_once(cache / "dataset" / "cifar-10-drawn", 1, few)
    image, label = next(cifar.train10()())
    assert (image.shape, image.dtype, label in range(10)) == ((3072,), np.float32, True)
    assert 0 <= image.min() < image.max() <= 1
    assert len(list(cifar.test10()())) == 4
    assert len(list(itertools.islice(cifar.test10(cycle=True)(), 9))) == 9
    photograph, classes = next(voc2012.val()())
    assert (photograph.shape[:2], photograph.shape[2]) == (classes.shape, 3)
    assert [len(list(reader()())) for reader in (voc2012.train, voc2012.test, voc2012.val)] == [24, 16, 8]


def test_a_hundred_classes(cache: Path) -> None:
    def few(folder: Path) -> None:
        draw_pictures.write_cifar100(folder, train=60, test=20)

    checked_files.create_once(cache / "dataset" / "cifar-100-drawn", 1, few)
    labels = [label for _, label in cifar.train100()()]
    assert (len(labels), len(list(cifar.test100()())), max(labels) > 90) == (60, 20, True)
