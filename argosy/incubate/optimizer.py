"""paddle.incubate.optimizer: the same optimizers as `paddle.incubate`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.optimizer.averaging import ModelAverage

__all__ = ["ModelAverage"]
__getattr__ = missing(__name__, globals())
