"""fluid.metrics against formulas in NumPy."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError

rng = np.random.default_rng(5)
BATCHES = [(rng.random((n, 1)), rng.integers(0, 2, (n, 1))) for n in (7, 40, 3)]
SCORES, LABELS = (np.concatenate(parts).ravel() for parts in zip(*BATCHES, strict=True))


def test_precision_and_recall_as_one_composite() -> None:
    both = fluid.metrics.CompositeMetric()
    both.add_metric(fluid.metrics.Precision())
    both.add_metric(fluid.metrics.Recall("found"))
    for _ in range(2):
        both.reset()
        for preds, labels in BATCHES:
            both.update(preds=preds, labels=labels)
        hits = ((SCORES > 0.5) & (LABELS == 1)).sum()
        assert both.eval() == [hits / (SCORES > 0.5).sum(), hits / LABELS.sum()]
    precision = fluid.metrics.Precision()
    precision.update(np.array([[0.5], [0.9], [0.2]]), np.array([[1], [0], [1]]))  # 0.5 is rounded to 0
    assert precision.get_config() == {"name": "Precision", "states": {"tp": 0, "fp": 1}}
    assert (precision.eval(), str(fluid.metrics.Recall("found"))) == (0.0, "found")
    precision.reset()
    assert precision.get_config()["states"] == {"tp": 0, "fp": 0}


def test_auc_is_the_probability_that_a_positive_scores_higher() -> None:
    auc = fluid.metrics.Auc("auc")
    for preds, labels in BATCHES:
        auc.update(preds=np.concatenate([1 - preds, preds], 1), labels=labels)
    positive, negative = SCORES[LABELS == 1], SCORES[LABELS == 0]
    assert auc.eval() == pytest.approx((positive[:, None] > negative).mean(), abs=1e-3)
    auc.reset()
    assert auc.eval() == 0


def test_accuracy_is_weighted_by_the_batch_size() -> None:
    accuracy = fluid.metrics.Accuracy()
    accuracy.update(value=np.array([0.5]), weight=3)
    accuracy.update(value=np.array([1.0]), weight=np.array([1]))
    assert accuracy.eval() == pytest.approx([(0.5 * 3 + 1) / 4])
    accuracy.reset()
    with pytest.raises(ConfigError, match="Accuracy has no data"):
        accuracy.eval()


def test_chunks_and_edit_distances() -> None:
    chunks = fluid.metrics.ChunkEvaluator()
    chunks.update(np.array([4]), np.array([5]), np.array([3]))
    chunks.update(6, 5, 3)
    precision, recall = 6 / 10, 6 / 10
    assert chunks.eval() == (precision, recall, pytest.approx(2 / (1 / precision + 1 / recall)))
    assert fluid.metrics.ChunkEvaluator().eval() == (0, 0, 0)
    distance = fluid.metrics.EditDistance()
    distance.update(np.array([[2.0], [0.0]]), np.array([2]))
    distance.update(np.array([[1.0]]), 1)
    assert distance.eval() == (1.0, pytest.approx(2 / 3))
    distance.reset()
    with pytest.raises(ConfigError, match="no data"):
        distance.eval()


def test_misuse_raises() -> None:
    with pytest.raises(ConfigError, match="preds is a list"):
        fluid.metrics.Recall().update([0.1], np.array([1]))
    with pytest.raises(ConfigError, match="no layers for object detection"):
        fluid.metrics.DetectionMAP(None, None, None)
    with pytest.raises(ConfigError, match="int is not a metric"):
        fluid.metrics.CompositeMetric().add_metric(1)
    with pytest.raises(NotImplementedError, match="update"):
        fluid.metrics.MetricBase("mine").update(None, None)


def test_a_metric_of_ones_own_resets_its_states() -> None:
    class Mean(fluid.metrics.MetricBase):
        def __init__(self) -> None:
            super().__init__(None)
            self.total, self.count, self.rows, self.last = 0.0, 0, np.ones(2), "x"

        def update(self, preds: float, labels: float) -> None:
            self.total, self.count = self.total + preds, self.count + 1

        def eval(self) -> float:
            return self.total / self.count

    mean = Mean()
    mean.update(3.0, 0.0)
    assert mean.eval() == 3.0
    mean.reset()
    assert (mean.total, mean.count, mean.rows.tolist(), mean.last) == (0.0, 0, [0, 0], None)
