"""fluid.incubate: the location of fleet in 1.x."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate import fleet
from argosy.framework.missing import missing

__all__ = ["fleet"]
__getattr__ = missing(__name__, globals())
