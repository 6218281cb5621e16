"""The 1.x names of `static.amp`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.static.amp import AutoMixedPrecisionLists, CustomOpLists, decorate, fp16_guard

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists", "decorate", "fp16_guard"]

__getattr__ = missing(__name__, globals())
