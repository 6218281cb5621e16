"""fleet.utils: ps_util.DistributedInfer."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.utils import ps_util
from argosy.framework.missing import missing

__all__ = ["ps_util"]

__getattr__ = missing(__name__, globals())
