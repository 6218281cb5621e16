"""Optimizers and learning-rate schedules with Paddle's names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.optimizer import lr
from argosy.optimizer.adadelta import Adadelta
from argosy.optimizer.adagrad import Adagrad
from argosy.optimizer.adam import Adam, AdamW
from argosy.optimizer.adamax import Adamax
from argosy.optimizer.ftrl import Ftrl
from argosy.optimizer.lamb import Lamb
from argosy.optimizer.lars_momentum import LarsMomentum
from argosy.optimizer.momentum import Momentum
from argosy.optimizer.optimizer import Optimizer
from argosy.optimizer.rmsprop import RMSProp
from argosy.optimizer.sgd import SGD

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
