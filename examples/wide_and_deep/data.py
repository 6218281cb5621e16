"""The built-in sample: drawn lines in the format of the Criteo files, with a rule that can be learned.

    label TAB 13 integers TAB 26 categories of 8 hex digits          a field may be empty

Each category has a hidden weight, as have the logarithms of some numbers. Their sum is the logit of a click, and
the label is drawn with that probability: so the AUC that the rule allows is known (`best_auc`), and no model
can do better. Every machine draws the same lines.
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from argosy.engine.data.checked_files import create_once
from argosy.engine.env import cache_dir

VERSION = 1
TRAIN_PARTS, TEST_PARTS, LINES = 8, 2, 2500
"""Files, and lines in each."""
BEST_AUC = 0.885
"""Of the rule itself on the test files; test_wide_and_deep.py computes it."""
_NUMBERS, _CATEGORIES = 13, 26
_WORDS = 40
"""Different values of a category."""
_MISSING = 0.05
Array = npt.NDArray[Any]


def sample() -> Path:
    """The folder with train/part-0 … and test/part-0 …; it is made on first use."""
    folder = cache_dir() / "criteo-sample"
    for name, parts in (("train", TRAIN_PARTS), ("test", TEST_PARTS)):
        create_once(folder / name, VERSION, lambda made, n=name, p=parts: _write(made, n, p))  # type: ignore[misc]
    return folder


def files(folder: Path, name: str) -> list[str]:
    """The files of `folder/name`, or of the folder itself if it has no such folder (real Criteo parts)."""
    within = folder / name if (folder / name).is_dir() else folder
    return sorted(str(path) for path in within.iterdir() if path.is_file() and path.name.startswith("part"))


def draw(name: str, part: int, lines: int = LINES) -> tuple[list[str], Array, Array]:
    """(lines, labels, logits of the rule) of one part file."""
    rule = np.random.default_rng(0)
    weights = rule.normal(0.0, 0.45, (_CATEGORIES, _WORDS))
    words = rule.integers(0, 2**32, (_CATEGORIES, _WORDS))
    of_numbers = rule.normal(0.0, 0.2, _NUMBERS)

    rng = np.random.default_rng([1, ["train", "test"].index(name), part])
    numbers = np.floor(rng.lognormal(1.0, 1.0, (lines, _NUMBERS))).astype(np.int64)
    chosen = np.minimum(rng.zipf(1.3, (lines, _CATEGORIES)) - 1, _WORDS - 1)
    chosen = rng.permuted(np.stack([chosen, rng.integers(0, _WORDS, chosen.shape)]), axis=0)[0]
    no_number, no_word = (rng.random((lines, n)) < _MISSING for n in (_NUMBERS, _CATEGORIES))
    parts = np.where(no_word, 0.0, np.take_along_axis(weights.T, chosen, axis=0))
    logits = parts.sum(1) + np.where(no_number, 0.0, np.log1p(numbers) - 1.0) @ of_numbers - 1.0
    labels = (rng.random(lines) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64)

    text = np.where(no_word, "", np.char.mod("%08x", np.take_along_axis(words.T, chosen, axis=0)))
    shown = np.where(no_number, "", numbers.astype(str))
    return ["\t".join(row) for row in np.column_stack([labels.astype(str), shown, text])], labels, logits


def best_auc() -> float:
    """The AUC of the rule's own logits on the test files."""
    drawn = [draw("test", part) for part in range(TEST_PARTS)]
    labels, logits = (np.concatenate([d[i] for d in drawn]) for i in (1, 2))
    ranks = np.empty(len(logits))
    ranks[np.argsort(logits)] = np.arange(1, len(logits) + 1)
    positives = int(labels.sum())
    above = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(labels) - positives)))


def _write(folder: Path, name: str, parts: int) -> None:
    for part in range(parts):
        (folder / f"part-{part}").write_text("\n".join(draw(name, part)[0]) + "\n")
