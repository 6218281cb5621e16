"""fluid.incubate.fleet.collective: the same fleet and strategy as `argosy.distributed.fleet`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet import DistributedStrategy, fleet
from argosy.framework.missing import missing

__all__ = ["DistributedStrategy", "fleet"]
__getattr__ = missing(__name__, globals())
