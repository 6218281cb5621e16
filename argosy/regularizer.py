"""Weight decay that is added to the gradient: L1Decay, L2Decay."""

# SPDX-License-Identifier: Apache-2.0
import numbers
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.framework.checks import number


class WeightDecay:
    """The base class; a subclass defines the term that is added to a parameter's gradient."""

    def __init__(self, coeff: float = 0.0) -> None:
        self.coeff = number(f"{type(self).__name__}: coeff", coeff, least=0)

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        """The gradient with the decay of `param`."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(param, grad); define it")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.coeff})"


class L1Decay(WeightDecay):
    """grad + coeff · sign(param)."""

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        return torch.add(grad, torch.sign(param), alpha=self.coeff)


class L2Decay(WeightDecay):
    """grad + coeff · param."""

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        return torch.add(grad, param, alpha=self.coeff)


def to_regularizer(given: Any, what: str = "weight_decay") -> WeightDecay | None:
    """Convert an optimizer's weight_decay or a parameter's regularizer; a number is L2Decay."""
    if given is None or isinstance(given, WeightDecay):
        return given
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        return L2Decay(float(given))
    raise ConfigError(f"{what} is {given!r}; use a number, regularizer.L1Decay or regularizer.L2Decay")
