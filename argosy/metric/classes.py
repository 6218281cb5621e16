"""Metrics over many batches, outside of the program: update with fetched arrays, then accumulate."""

# SPDX-License-Identifier: Apache-2.0
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.metric.functions import area


class Metric(ABC):
    """The base class: accumulates over batches. `compute` may be part of the program; the rest is NumPy."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the accumulated batches."""

    @abstractmethod
    def update(self, *args: Any) -> Any:
        """Add a batch."""

    @abstractmethod
    def accumulate(self) -> Any:
        """The value over all batches since `reset`."""

    @abstractmethod
    def name(self) -> Any:
        """The name of the value."""

    def compute(self, *args: Any) -> Any:
        """The input of `update`; by default the outputs and labels."""
        return args


class Accuracy(Metric):
    """The fraction of samples whose label is among the k highest scores, for each k of `topk`."""

    def __init__(self, topk: Sequence[int] = (1,), name: str | None = None) -> None:
        if not topk or min(topk) < 1:
            raise ConfigError(f"Accuracy: topk={topk!r}; give one or more numbers of guesses, each 1 or more")
        self.topk = tuple(topk)
        self._name = name or "acc"
        self.reset()

    def compute(self, pred: Any, label: Any, *args: Any) -> Any:
        """Which of the best guesses are right, [N, max(topk)]; labels are [N], [N, 1] or one-hot."""
        if isinstance(pred, Variable):
            return apply("accuracy", _right, pred, label, max(self.topk))
        return _right(torch.as_tensor(pred), torch.as_tensor(label), max(self.topk)).numpy()

    def update(self, correct: Any, *args: Any) -> Any:
        """Add the result of `compute`; returns the accuracy of this batch."""
        right = np.asarray(correct)
        samples = int(np.prod(right.shape[:-1]))
        hits = np.array([right[..., :k].sum() for k in self.topk], dtype=np.float64)
        self.total += hits
        self.count += samples
        return _one_or_list(hits / max(samples, 1))

    def reset(self) -> None:
        self.total = np.zeros(len(self.topk))
        self.count = 0

    def accumulate(self) -> Any:
        return _one_or_list(self.total / max(self.count, 1))

    def name(self) -> list[str]:
        return [self._name] if len(self.topk) == 1 else [f"{self._name}_top{k}" for k in self.topk]


class Precision(Metric):
    """The fraction of positives among the samples with a score of at least 0.5; 0 if there are none."""

    def __init__(self, name: str = "precision") -> None:
        self._name = name
        self.reset()

    def update(self, preds: Any, labels: Any) -> None:
        guessed, positive = _binary(preds, labels)
        self.tp += int((guessed & positive).sum())
        self.fp += int((guessed & ~positive).sum())

    def reset(self) -> None:
        self.tp = self.fp = 0

    def accumulate(self) -> float:
        return self.tp / max(self.tp + self.fp, 1)

    def name(self) -> str:
        return self._name


class Recall(Metric):
    """The fraction of the positive samples with a score of at least 0.5; 0 if there are none."""

    def __init__(self, name: str = "recall") -> None:
        self._name = name
        self.reset()

    def update(self, preds: Any, labels: Any) -> None:
        guessed, positive = _binary(preds, labels)
        self.tp += int((guessed & positive).sum())
        self.fn += int((~guessed & positive).sum())

    def reset(self) -> None:
        self.tp = self.fn = 0

    def accumulate(self) -> float:
        return self.tp / max(self.tp + self.fn, 1)

    def name(self) -> str:
        return self._name


class Auc(Metric):
    """The area under the ROC curve, from num_thresholds + 1 bins of scores."""

    def __init__(self, curve: str = "ROC", num_thresholds: int = 4095, name: str = "auc") -> None:
        if curve != "ROC" or num_thresholds < 1:
            raise ConfigError(
                f"Auc: curve={curve!r}, num_thresholds={num_thresholds}; use 'ROC' and at least 1"
            )
        self.num_thresholds = num_thresholds
        self._name = name
        self.reset()

    def update(self, preds: Any, labels: Any) -> None:
        """Add scores [N, 2] (the last column counts) or [N, 1], between 0 and 1, and labels [N, 1] or [N]."""
        scores, positive = np.asarray(preds), np.asarray(labels).reshape(-1) != 0
        bins = (scores.reshape(-1, scores.shape[-1])[:, -1] * self.num_thresholds).astype(np.int64)
        if bins.size and not 0 <= bins.min() <= bins.max() <= self.num_thresholds:
            raise ConfigError(
                f"Auc: scores from {scores.min()} to {scores.max()}; give probabilities, from 0 to 1"
            )
        self.stat_pos += np.bincount(bins[positive], minlength=self.num_thresholds + 1)
        self.stat_neg += np.bincount(bins[~positive], minlength=self.num_thresholds + 1)

    def reset(self) -> None:
        self.stat_pos = np.zeros(self.num_thresholds + 1, dtype=np.int64)
        self.stat_neg = np.zeros(self.num_thresholds + 1, dtype=np.int64)

    def accumulate(self) -> float:
        return area(torch.from_numpy(self.stat_pos), torch.from_numpy(self.stat_neg)).item()

    def name(self) -> str:
        return self._name


def _right(scores: torch.Tensor, label: torch.Tensor, k: int) -> torch.Tensor:
    if label.ndim == scores.ndim and label.shape[-1] != 1:
        label = label.argmax(-1)
    guesses = scores.topk(k).indices
    return (guesses == label.reshape(*guesses.shape[:-1], 1)).float()


def _binary(preds: Any, labels: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.floor(np.asarray(preds).reshape(-1) + 0.5) == 1, np.asarray(labels).reshape(-1) == 1


def _one_or_list(values: np.ndarray[Any, Any]) -> Any:
    return float(values[0]) if len(values) == 1 else [float(v) for v in values]
