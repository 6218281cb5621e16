"""Paddle's functions of Variables: creation, arithmetic, shapes, search."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.framework.input_types import check_inputs as _check_inputs
from argosy.modules import collect as _collect
from argosy.tensor import creation, distinct, in_place, linalg, logic, manipulation, math, reduction, search
from argosy.tensor.input_types import INPUTS as _INPUTS

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.tensor.creation import *
    from argosy.tensor.distinct import *
    from argosy.tensor.in_place import *
    from argosy.tensor.linalg import *
    from argosy.tensor.logic import *
    from argosy.tensor.manipulation import *
    from argosy.tensor.math import *
    from argosy.tensor.reduction import *
    from argosy.tensor.search import *

_collect(globals(), creation, distinct, in_place, linalg, logic, manipulation, math, reduction, search)
_check_inputs(globals(), _INPUTS)
