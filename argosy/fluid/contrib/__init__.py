"""fluid.contrib: mixed precision."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.contrib import mixed_precision
from argosy.framework.missing import missing
from argosy.modules import submodules

__all__ = ["mixed_precision"]

__getattr__ = submodules(__name__, ("layers",), missing(__name__, globals()))
