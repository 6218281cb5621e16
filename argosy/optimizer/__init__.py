"""Optimizers and learning-rate schedules with Paddle's names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.optimizer import lr
from argosy.optimizer.algorithms import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lamb,
    LarsMomentum,
    Momentum,
    RMSProp,
)
from argosy.optimizer.optimizer import Optimizer

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "LarsMomentum",
    "Momentum",
    "Optimizer",
    "RMSProp",
    "lr",
]

__getattr__ = missing(__name__, globals())
