"""Paddle's nn.functional: stateless layers as functions of Variables."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.framework.input_types import check_inputs as _check_inputs
from argosy.framework.missing import missing as _missing
from argosy.modules import collect as _collect
from argosy.nn.functional import (
    activation,
    common,
    conv,
    extension,
    in_place,
    input,
    loss,
    norm,
    pooling,
    structured_loss,
    vision,
)
from argosy.nn.functional.input_types import INPUTS as _INPUTS

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.nn.functional.activation import *
    from argosy.nn.functional.common import *
    from argosy.nn.functional.conv import *
    from argosy.nn.functional.extension import *
    from argosy.nn.functional.in_place import *
    from argosy.nn.functional.input import *
    from argosy.nn.functional.loss import *
    from argosy.nn.functional.norm import *
    from argosy.nn.functional.pooling import *
    from argosy.nn.functional.structured_loss import *
    from argosy.nn.functional.vision import *

_collect(
    globals(),
    activation,
    common,
    conv,
    extension,
    in_place,
    input,
    loss,
    norm,
    pooling,
    structured_loss,
    vision,
)
_check_inputs(globals(), _INPUTS)
__getattr__ = _missing(__name__, globals())
