"""Metrics over many batches, outside of the program."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy import metric, static
from argosy.engine.errors import ConfigError


def test_accuracy_adds_batches_up() -> None:
    counted = metric.Accuracy()
    pred = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert counted.update(counted.compute(pred, np.array([[1], [0], [0]]))) == pytest.approx(2 / 3)
    assert counted.update(counted.compute(pred[:1], np.array([0]))) == 0
    assert counted.accumulate() == pytest.approx(2 / 4)
    counted.reset()
    assert counted.accumulate() == 0
    assert counted.name() == ["acc"]


def test_accuracy_for_several_numbers_of_guesses() -> None:
    counted = metric.Accuracy(topk=(1, 2), name="hit")
    pred = np.array([[0.1, 0.5, 0.4], [0.2, 0.3, 0.5]])
    assert counted.update(counted.compute(pred, np.array([[2], [2]]))) == [0.5, 1.0]
    assert counted.accumulate() == [0.5, 1.0]
    assert counted.name() == ["hit_top1", "hit_top2"]
    with pytest.raises(ConfigError, match=r"topk=\(0,\)"):
        metric.Accuracy(topk=(0,))


def test_labels_may_be_one_hot_and_compute_may_be_part_of_a_program() -> None:
    counted = metric.Accuracy()
    pred, label = np.array([[0.1, 0.9], [0.8, 0.2]], dtype="float32"), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert counted.compute(pred, label).tolist() == [[1], [0]]
    right = counted.compute(static.data("p", [None, 2]), static.data("y", [None, 1], "int64"))
    fetched = static.Executor().run(feed={"p": pred, "y": np.array([[1], [1]])}, fetch_list=[right])[0]
    assert counted.update(fetched) == 0.5


BINARY = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=20)


@given(st.lists(BINARY, min_size=1, max_size=3))
def test_precision_and_recall_are_ratios_of_counts(batches: list[list[tuple[float, bool]]]) -> None:
    precision, recall = metric.Precision(), metric.Recall()
    for batch in batches:
        scores, labels = np.array([[p] for p, _ in batch]), np.array([[int(y)] for _, y in batch])
        precision.update(scores, labels)
        recall.update(scores, labels)
    both = [(p + 0.5 >= 1, y) for batch in batches for p, y in batch]
    hits, guessed, positive = (sum(map(f, both)) for f in (all, lambda g: g[0], lambda g: g[1]))
    assert precision.accumulate() == pytest.approx(hits / guessed if guessed else 0)
    assert recall.accumulate() == pytest.approx(hits / positive if positive else 0)


def test_precision_and_recall_have_names_and_can_be_reset() -> None:
    counts: list[Any] = [metric.Precision(), metric.Recall("share")]
    assert [c.name() for c in counts] == ["precision", "share"]
    for count in counts:
        count.update(np.array([0.9]), np.array([1]))
        assert count.accumulate() == 1
        count.reset()
        assert count.accumulate() == 0


def test_auc_is_near_the_exact_one_over_batches() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (200, 1))
    scores = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    counted = metric.Auc()
    for part in (slice(0, 50), slice(50, 200)):
        counted.update(np.concatenate([1 - scores, scores], 1)[part], labels[part])
    difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    assert counted.accumulate() == pytest.approx(
        (difference > 0).mean() + 0.5 * (difference == 0).mean(), abs=1 / 4095
    )
    counted.reset()
    assert counted.accumulate() == 0
    assert counted.name() == "auc"


def test_auc_refuses_what_are_no_probabilities() -> None:
    with pytest.raises(ConfigError, match=r"scores from -0\.1 to 0\.5; give probabilities"):
        metric.Auc().update(np.array([[-0.1], [0.5]]), np.array([[0], [1]]))
    with pytest.raises(ConfigError, match="curve='PR'"):
        metric.Auc("PR")


def test_a_metric_of_one_s_own_needs_its_four_methods() -> None:
    class Half(metric.Metric):
        def reset(self) -> None: ...
        def update(self, *args: Any) -> Any: ...
        def accumulate(self) -> float:
            return 0.5

        def name(self) -> str:
            return "half"

    assert Half().compute(1, 2) == (1, 2)
    with pytest.raises(TypeError):
        metric.Metric()  # type: ignore[abstract]  # that is the test
