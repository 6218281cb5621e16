"""Metrics: `accuracy` and `auc` as part of a program, and classes that accumulate over batches in NumPy."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.metric.classes import Accuracy, Auc, Metric, Precision, Recall
from argosy.metric.functions import accuracy, auc

__all__ = ["Accuracy", "Auc", "Metric", "Precision", "Recall", "accuracy", "auc"]

__getattr__ = missing(__name__, globals())
