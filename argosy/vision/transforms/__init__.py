"""paddle.vision.transforms: transforms of images as objects, and as functions (`functional`)."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.framework.missing import missing as _missing
from argosy.modules import collect as _collect
from argosy.vision.transforms import functional, transforms

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.vision.transforms.functional import *
    from argosy.vision.transforms.transforms import *

_collect(globals(), functional, transforms)
__getattr__ = _missing(__name__, globals())
