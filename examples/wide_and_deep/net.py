"""Wide and deep, as in FleetX: will this advertisement be clicked?

    13 numbers ─────────────────────────────── linear ──────────┐
        └──────────────────────┐                                + ── sigmoid ── probability of a click
    26 categories ── a table ── concat ── 400 ── 400 ── 400 ── 1 ┘

All 26 categories share one table of 1,000,001 rows. With parameter servers it lives there, and only the rows of
a batch come to a trainer; without them it is a parameter like any other.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any

import argosy as paddle

NUMBERS = 13
CATEGORIES = 26
TABLE_ROWS = 1_000_001
TABLE = "SparseFeatFactors"


def inputs() -> tuple[Any, list[Any], Any]:
    """(numbers, categories, label): the variables that a batch fills."""
    numbers = paddle.static.data("dense_input", [None, NUMBERS], "float32")
    categories = [paddle.static.data(f"C{i + 1}", [None, 1], "int64") for i in range(CATEGORIES)]
    return numbers, categories, paddle.static.data("label", [None, 1], "int64")


def wide_and_deep(
    numbers: Any,
    categories: Sequence[Any],
    rows: int = TABLE_ROWS,
    width: int = 10,
    layers: Sequence[int] = (400, 400, 400),
) -> Any:
    """The probability of a click, [N, 1]."""
    wide = _linear(numbers, 1, paddle.nn.initializer.TruncatedNormal(0.0, 1.0 / math.sqrt(NUMBERS)))
    ids = paddle.reshape(paddle.concat(list(categories), axis=1), [-1, 1])  # one lookup for all of them
    embedded = paddle.reshape(_lookup(ids, [rows, width]), [-1, CATEGORIES * width])
    deep = paddle.concat([embedded, numbers], axis=1)
    for size in layers:
        deep = paddle.nn.functional.relu(_linear(deep, size, _spread(deep)))
    return paddle.nn.functional.sigmoid(paddle.add(wide, _linear(deep, 1, _spread(deep))))


def loss(probability: Any, label: Any) -> Any:
    """The mean of the log loss."""
    target = paddle.cast(label, "float32")
    return paddle.mean(paddle.nn.functional.log_loss(input=probability, label=target))


def auc(probability: Any, label: Any) -> tuple[Any, list[Any]]:
    """(AUC of all batches so far, the two counts that fleet.metrics.auc adds up over the workers)."""
    both = paddle.concat([1.0 - probability, probability], axis=1)
    value, _, counts = paddle.static.auc(input=both, label=label, num_thresholds=4096, slide_steps=20)
    return value, counts[2:]


def _lookup(ids: Any, size: Sequence[int]) -> Any:
    attr = paddle.ParamAttr(name=TABLE, initializer=paddle.nn.initializer.Uniform(-0.1, 0.1))
    return paddle.static.nn.sparse_embedding(ids, size=size, param_attr=attr)


def _spread(x: Any) -> Any:
    return paddle.nn.initializer.Normal(std=1.0 / math.sqrt(x.shape[1]))


def _linear(x: Any, size: int, initializer: Any) -> Any:
    return paddle.static.nn.fc(x, size, weight_attr=paddle.ParamAttr(initializer=initializer))
