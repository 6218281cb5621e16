"""fluid.incubate.fleet: the 1.x names of role makers, collective training and parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet import base, collective, parameter_server, utils
from argosy.framework.missing import missing

__all__ = ["base", "collective", "parameter_server", "utils"]
__getattr__ = missing(__name__, globals())
