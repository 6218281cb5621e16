"""Weight decay with the names of Paddle 1.x."""

# SPDX-License-Identifier: Apache-2.0
from argosy import regularizer
from argosy.framework.missing import missing

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer"]


class L1DecayRegularizer(regularizer.L1Decay):
    """grad + regularization_coeff · sign(param)."""

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        super().__init__(regularization_coeff)


class L2DecayRegularizer(regularizer.L2Decay):
    """grad + regularization_coeff · param."""

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        super().__init__(regularization_coeff)


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer

__getattr__ = missing(__name__, globals())
