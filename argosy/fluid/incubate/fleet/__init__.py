"""fluid.incubate.fleet: the 1.x names of role makers and of collective training."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet import base, collective, utils
from argosy.framework.missing import missing

__all__ = ["base", "collective", "utils"]
__getattr__ = missing(__name__, globals())
