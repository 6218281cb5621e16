"""SGD."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.sgd import sgd
from argosy.optimizer.optimizer import Optimizer


class SGD(Optimizer):
    """p -= lr · g."""

    folds_l2 = True

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        sgd(parameter.value, grad, rate, parameter.learning_rate, l2)
