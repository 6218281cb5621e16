"""Generate small text data sets in the formats of the originals, with structure that a model can learn.

Words are made of syllables. Every machine generates the same files.
"""

# SPDX-License-Identifier: Apache-2.0
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from argosy.engine.data.corpora.archives import write_tar, write_zip
from argosy.engine.data.corpora.movielens import AGES
from argosy.engine.data.corpora.translation import MARKS

WORDS = [a + b for a in ("ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "ze") for b in
         ("ban", "del", "fir", "gos", "hum", "jat", "kel", "nor", "pim", "rus")]  # fmt: skip


def write_imdb(folder: Path, per_class: int = 200) -> None:
    """aclImdb_v1.tar.gz: reviews in which words of their sentiment prevail."""
    rng = np.random.default_rng(0)
    reviews = {
        f"aclImdb/{split}/{kind}/{number}_{9 if kind == 'pos' else 2}.txt": _review(rng, kind)
        for split in ("train", "test")
        for kind in ("neg", "pos")
        for number in range(per_class)
    }
    write_tar(folder / "aclImdb_v1.tar.gz", reviews)


def write_movie_reviews(folder: Path, per_class: int = 100) -> None:
    """movie_reviews.zip: the same kind of reviews."""
    rng = np.random.default_rng(1)
    reviews = {
        f"movie_reviews/{kind}/cv{number:03}_{number:05}.txt": _review(rng, kind)
        for kind in ("neg", "pos")
        for number in range(per_class)
    }
    write_zip(folder / "movie_reviews.zip", reviews)


def write_imikolov(folder: Path) -> None:
    """simple-examples.tgz: sentences of a Markov chain, in which each word has three likely successors."""
    rng = np.random.default_rng(2)
    successors = rng.integers(0, 60, (60, 3))
    texts = {}
    for split, count in (("train", 1500), ("valid", 150), ("test", 150)):
        text = []
        for length in rng.integers(5, 14, count):
            chain = [int(rng.integers(60))]
            for draw in rng.choice(3, length, p=[0.6, 0.3, 0.1]):
                chain.append(int(successors[chain[-1], draw]))
            text.append(" " + " ".join(WORDS[i] for i in chain) + " \n")
        texts[f"./simple-examples/data/ptb.{split}.txt"] = "".join(text).encode()
    write_tar(folder / "simple-examples.tgz", texts)


def write_movielens(folder: Path) -> None:
    """ml-1m.zip: ratings that depend on the user's group of ages and the film's genre."""
    rng = np.random.default_rng(3)
    genres = ("Action", "Animation", "Comedy", "Drama", "Musical", "Thriller")
    taste = rng.normal(0, 1.3, (len(AGES), len(genres)))
    genre = rng.integers(0, len(genres), 80)
    age = rng.integers(0, len(AGES), 60)
    titles = [" ".join(WORDS[i].title() for i in rng.integers(0, 100, 2)) for _ in genre]
    movies = [
        f"{i}::{titles[i - 1]} ({1950 + i % 50})::{genres[g]}" + ("|War" if i % 7 == 0 else "")
        for i, g in enumerate(genre, start=1)
    ]
    users = [
        f"{i}::{'MF'[i % 2]}::{AGES[a]}::{rng.integers(0, 21)}::{10000 + i}"
        for i, a in enumerate(age, start=1)
    ]
    ratings = []
    for number in range(3000):
        user, movie = rng.integers(0, len(age)), rng.integers(0, len(genre))
        score = 3 + taste[age[user], genre[movie]] + rng.normal(0, 0.4)
        ratings.append(f"{user + 1}::{movie + 1}::{int(np.clip(round(score), 1, 5))}::{978300000 + number}")
    contents = {"movies": movies, "users": users, "ratings": ratings}
    write_zip(
        folder / "ml-1m.zip",
        {f"ml-1m/{name}.dat": ("\n".join(rows) + "\n").encode("latin-1") for name, rows in contents.items()},
    )


def write_uci_housing(folder: Path) -> None:
    """housing.data: 506 rows; the price is a linear function of the features, and noise."""
    rng = np.random.default_rng(4)
    features = rng.gamma(2.0, rng.uniform(1, 30, 13), (506, 13))
    slopes = rng.normal(0, 1, 13) / features.std(axis=0)
    price = 22 + 2.5 * (features - features.mean(axis=0)) @ slopes + rng.normal(0, 1, 506)
    rows = np.column_stack([features, price])
    text = "".join(" " + " ".join(f"{value:8.4f}" for value in row) + "\n" for row in rows)
    (folder / "housing.data").write_text(text)


def write_wmt14(folder: Path) -> None:
    """wmt14.tgz: a target word for each source word, with dictionaries."""
    rng = np.random.default_rng(5)
    dictionary = "".join(f"{word}\n" for word in (*MARKS, *WORDS)).encode()
    target = "".join(f"{word}\n" for word in (*MARKS, *map(_translated, WORDS))).encode()
    splits = {
        f"wmt14/{split}/{split}": _sentence_pairs(rng, count)
        for split, count in (("train", 600), ("test", 60), ("gen", 60))
    }
    write_tar(folder / "wmt14.tgz", {"wmt14/src.dict": dictionary, "wmt14/trg.dict": target, **splits})


def write_wmt16(folder: Path) -> None:
    """wmt16.tar.gz: the same kind of sentences."""
    rng = np.random.default_rng(6)
    splits = {
        f"wmt16/{split}": _sentence_pairs(rng, count)
        for split, count in (("train", 600), ("test", 60), ("val", 60))
    }
    write_tar(folder / "wmt16.tar.gz", splits)


def write_conll05(folder: Path) -> None:
    """Sentences "agent verb patient (time)" with their roles, dictionaries and word vectors."""
    rng = np.random.default_rng(7)
    nouns, verbs, times = WORDS[:50], WORDS[50:70], WORDS[70:80]
    words, props = [], []
    for number in range(200):
        agent, patient = (rng.choice(nouns, rng.integers(1, 4)).tolist() for _ in range(2))
        verb, time = str(rng.choice(verbs)), rng.choice(times, number % 2).tolist()
        roles = [*_bracket("A0", agent), "(V*)", *_bracket("A1", patient), *_bracket("AM-TMP", time)]
        sentence = [*agent, verb, *patient, *time]
        columns = [
            f"{verb if word is verb else '-'}\t{role}" for word, role in zip(sentence, roles, strict=True)
        ]
        words.append("\n".join(sentence) + "\n\n")
        props.append("\n".join(columns) + "\n\n")
    root = "conll05st-release/test.wsj"
    packed = {
        f"{root}/words/test.wsj.words.gz": gzip.compress("".join(words).encode(), mtime=0),
        f"{root}/props/test.wsj.props.gz": gzip.compress("".join(props).encode(), mtime=0),
    }
    write_tar(folder / "conll05st-tests.tar.gz", packed)
    known = ["<unk>", "bos", "eos", *WORDS[:80]]
    (folder / "wordDict.txt").write_text("".join(f"{word}\n" for word in known))
    (folder / "verbDict.txt").write_text("".join(f"{word}\n" for word in verbs))
    roles = [f"{prefix}-{role}\n" for role in ("A0", "A1", "AM-TMP", "V") for prefix in "BI"]
    (folder / "targetDict.txt").write_text("".join([*roles, "O\n"]))
    vectors = rng.normal(0, 0.1, (len(known), 32)).astype(np.float32)
    (folder / "emb").write_bytes(bytes(16) + vectors.tobytes())  # a header of 16 bytes, as the original


def _review(rng: np.random.Generator, kind: str) -> bytes:
    """Words of the review's sentiment, some of the other one, and many neutral ones."""
    mood = (60, 80) if kind == "pos" else (80, 100)
    other = (80, 100) if kind == "pos" else (60, 80)
    kinds = rng.choice(3, int(rng.integers(20, 60)), p=[0.62, 0.32, 0.06])
    words = [WORDS[rng.integers(*((0, 60), mood, other)[k])] for k in kinds]
    return (" ".join(words).capitalize() + ", and so on.\n").encode()


def _sentence_pairs(rng: np.random.Generator, count: int) -> bytes:
    rows = []
    for length in rng.integers(3, 9, count):
        source = [WORDS[i] for i in rng.integers(0, 40, length)]
        rows.append(f"{' '.join(source)}\t{' '.join(map(_translated, source))}\n")
    return "".join(rows).encode()


def _translated(word: str) -> str:
    return word[::-1]


def _bracket(role: str, words: Sequence[str]) -> list[str]:
    if len(words) < 2:
        return [f"({role}*)"] * len(words)
    return [f"({role}*", *["*"] * (len(words) - 2), "*)"]
