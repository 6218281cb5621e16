"""fluid.metrics: metrics over many batches with the interface of 1.x: `update`, `eval`, `reset`, `get_config`.

The states of a metric are its attributes without an underscore, which `reset` sets to zero.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import numpy as np

from argosy import metric
from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]


class MetricBase:
    """The base class; subclasses define `update` and `eval`."""

    def __init__(self, name: str | None = None) -> None:
        self._name: Any = type(self).__name__ if name is None else str(name)

    def __str__(self) -> str:
        return str(self._name)

    def reset(self) -> None:
        """Set the states to zero: numbers, arrays; any other state to None."""
        for state, value in self._states().items():
            if isinstance(value, np.ndarray | np.generic):
                zero: Any = np.zeros_like(value)
            else:
                zero = type(value)(0) if isinstance(value, int | float) else None
            setattr(self, state, zero)

    def get_config(self) -> dict[str, Any]:
        """{"name": the name, "states": a copy of the states}."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, preds: Any, labels: Any) -> Any:
        """Add a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define update(), which adds a batch")

    def eval(self) -> Any:
        """The value over all batches since `reset`."""
        raise NotImplementedError(f"{type(self).__name__} does not define eval(), the value of all batches")

    def _states(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric."""
        if not isinstance(metric, MetricBase):
            raise ConfigError(f"add_metric: {type(metric).__name__} is not a metric of fluid.metrics")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        for part in self._metrics:
            part.update(preds, labels)

    def reset(self) -> None:
        for part in self._metrics:
            part.reset()

    def eval(self) -> list[Any]:
        """The values of the metrics, in the order in which they were added."""
        return [part.eval() for part in self._metrics]


class _Accumulated(metric.Metric):
    """The interface of 1.x for a metric of `argosy.metric`."""

    def eval(self) -> Any:
        return self.accumulate()


class Precision(_Accumulated, metric.Precision, MetricBase):
    """The fraction of positives among the samples with a score above 0.5; 0 if there are none."""

    def __init__(self, name: str | None = None) -> None:
        metric.Precision.__init__(self)
        MetricBase.__init__(self, name)

    def update(self, preds: Any, labels: Any) -> None:
        metric.Precision.update(self, np.rint(_array("preds", preds)), _array("labels", labels))


class Recall(_Accumulated, metric.Recall, MetricBase):
    """The fraction of the positive samples with a score above 0.5; 0 if there are none."""

    def __init__(self, name: str | None = None) -> None:
        metric.Recall.__init__(self)
        MetricBase.__init__(self, name)

    def update(self, preds: Any, labels: Any) -> None:
        metric.Recall.update(self, np.rint(_array("preds", preds)), _array("labels", labels))


class Auc(_Accumulated, metric.Auc, MetricBase):
    """The area under the ROC curve, from num_thresholds + 1 bins of scores."""

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        metric.Auc.__init__(self, curve, num_thresholds)
        MetricBase.__init__(self, name)

    def update(self, preds: Any, labels: Any) -> None:
        """Add scores [N, 2] (the last column counts) and labels [N, 1] or [N]."""
        metric.Auc.update(self, _array("preds", preds), _array("labels", labels))


class Accuracy(MetricBase):
    """The mean of the accuracies of batches (`fluid.layers.accuracy`), weighted by their sizes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add the accuracy of a batch of `weight` samples."""
        self.value += value * weight
        self.weight += float(np.asarray(weight).item())

    def eval(self) -> Any:
        _check_updated(self, self.weight)
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the numbers of chunks of each batch."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks = self.num_label_chunks = self.num_correct_chunks = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:  # type: ignore[override]
        """Add the numbers of chunks that a batch's predictions, its labels, and both have."""
        self.num_infer_chunks += int(np.sum(num_infer_chunks))
        self.num_label_chunks += int(np.sum(num_label_chunks))
        self.num_correct_chunks += int(np.sum(num_correct_chunks))

    def eval(self) -> tuple[float, float, float]:
        """(precision, recall, F1)."""
        precision = self.num_correct_chunks / max(self.num_infer_chunks, 1)
        recall = self.num_correct_chunks / max(self.num_label_chunks, 1)
        f1 = 2 * precision * recall / (precision + recall) if self.num_correct_chunks else 0.0
        return precision, recall, f1


class EditDistance(MetricBase):
    """The mean edit distance, and the fraction of sequences with any error."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Add the distances of a batch of `seq_num` sequences."""
        values = np.asarray(distances)
        self.total_distance += float(values.sum())
        self.seq_num += int(np.sum(seq_num))
        self.instance_error += int(np.count_nonzero(values))

    def eval(self) -> tuple[float, float]:
        """(mean distance, fraction of sequences with an error)."""
        _check_updated(self, self.seq_num)
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray | np.generic):
        raise ConfigError(f"{name} is a {type(value).__name__}; give a fetched NumPy array")
    return np.asarray(value)


def _check_updated(metric: MetricBase, count: float) -> None:
    if not count:
        raise ConfigError(f"{metric} has no data; call update() with a batch before eval()")


__getattr__ = missing(__name__, globals())
