"""paddle.incubate: optimizers that Paddle has not moved to `paddle.optimizer` yet."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.incubate import optimizer
from argosy.optimizer.averaging import ModelAverage
from argosy.optimizer.look_ahead import LookAhead

__all__ = ["LookAhead", "ModelAverage", "optimizer"]
__getattr__ = missing(__name__, globals())
