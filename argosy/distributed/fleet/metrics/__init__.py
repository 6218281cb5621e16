"""Metrics over all workers: `fleet.metrics.auc(stat_pos, stat_neg)`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.metrics.metric import acc, auc, mae, max, min, mse, rmse, sum
from argosy.framework.missing import missing

__all__ = ["acc", "auc", "mae", "max", "min", "mse", "rmse", "sum"]
__getattr__ = missing(__name__, globals())
