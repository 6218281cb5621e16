"""paddle.incubate.optimizer: wrappers of other optimizers, and averages of weights."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.optimizer.averaging import ModelAverage
from argosy.optimizer.gradient_merge import GradientMergeOptimizer
from argosy.optimizer.look_ahead import LookAhead

__all__ = ["GradientMergeOptimizer", "LookAhead", "ModelAverage"]
__getattr__ = missing(__name__, globals())
