"""fluid.incubate.fleet.parameter_server: jobs with parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.parameter_server import distribute_transpiler, pslib
from argosy.framework.missing import missing

__all__ = ["distribute_transpiler", "pslib"]
__getattr__ = missing(__name__, globals())
