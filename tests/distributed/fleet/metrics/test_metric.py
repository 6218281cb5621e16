"""fleet.metrics: values against a plain count, inputs of all kinds, empty classes."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import argosy as paddle
from argosy.distributed.fleet import metrics
from argosy.engine.errors import ConfigError, ScopeError, UnknownNameError
from argosy.engine.runtime.scope import Scope, global_scope


def pairs(positives: list[int], negatives: list[int]) -> float:
    """The share of (positive, negative) pairs in the right order; ties count a half."""
    won = sum(
        p * n * (1.0 if i > j else 0.5 if i == j else 0.0)
        for i, p in enumerate(positives)
        for j, n in enumerate(negatives)
    )
    return won / (sum(positives) * sum(negatives))


counts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(counts)
def test_auc_is_the_share_of_pairs_in_the_right_order(bins: list[tuple[int, int]]) -> None:
    positives, negatives = map(list, zip(*bins, strict=True))
    values = metrics.auc(np.array([positives]), np.array([negatives]))
    expected = pairs(positives, negatives) if sum(positives) and sum(negatives) else 0.5
    assert values == pytest.approx(expected, abs=1e-12)


def test_auc_is_a_half_without_positives_or_negatives() -> None:
    none, some = np.zeros((1, 4), np.int64), np.ones((1, 4), np.int64)
    assert [metrics.auc(none, some), metrics.auc(some, none), metrics.auc(none, none)] == [0.5] * 3


def test_auc_reads_the_variables_of_static_auc() -> None:
    score = paddle.static.data("score", [None, 2], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    value, _, stats = paddle.static.auc(score, label, num_thresholds=4095)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    rng = np.random.default_rng(0)
    p = rng.random((64, 1), np.float32)
    feed = {"score": np.hstack([1 - p, p]), "label": (rng.random((64, 1)) < p).astype("int64")}
    (expected,) = exe.run(feed=feed, fetch_list=[value])
    assert metrics.auc(stats[2], stats[3]) == pytest.approx(expected.item())
    assert metrics.auc(stats[2].name, stats[3].name, global_scope()) == pytest.approx(expected.item())


def test_auc_with_bins_that_do_not_match_is_refused() -> None:
    with pytest.raises(ConfigError, match="stat_pos has 2 bins and stat_neg 3"):
        metrics.auc(np.ones(2), np.ones(3))


def test_the_means() -> None:
    assert metrics.mae(np.array([6.0]), np.array([4.0])) == 1.5
    assert metrics.mse(np.array([36.0]), np.array([4])) == 9.0
    assert metrics.rmse(36.0, 4) == 3.0
    assert metrics.acc(np.array([3]), np.array([4])) == 0.75


def test_sums_and_extremes_keep_the_shape() -> None:
    mine = np.array([[1, 2, 3]])
    for function in (metrics.sum, metrics.max, metrics.min):
        assert function(mine).tolist() == [[1, 2, 3]]


def test_a_name_is_looked_up_in_the_scope_that_is_given() -> None:
    scope = Scope()
    scope.var("total").get_tensor().set(np.array([5.0]))
    assert metrics.sum("total", scope).tolist() == [5.0]
    with pytest.raises(ScopeError, match="'total' has no value"):
        metrics.sum("total")


def test_a_mean_over_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="acc over 0 instances"):
        metrics.acc(np.array([0]), np.array([0]))


def test_a_mean_wants_one_number_each() -> None:
    with pytest.raises(ConfigError, match=r"mae: shapes \[\[2\], \[1\]\]"):
        metrics.mae(np.ones(2), np.ones(1))


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(UnknownNameError, match="fleet.metrics.mpe is not in Argosy"):
        _ = metrics.mpe
