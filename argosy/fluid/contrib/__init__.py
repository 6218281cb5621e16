"""fluid.contrib: mixed precision."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.contrib import mixed_precision
from argosy.framework.missing import missing

__all__ = ["mixed_precision"]

__getattr__ = missing(__name__, globals())
