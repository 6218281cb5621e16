"""The layers of nn."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.modules import collect as _collect
from argosy.nn.layer import activation, common, container, conv, loss, norm, pooling, transformer
from argosy.nn.layer.layers import Layer as Layer

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.nn.layer.activation import *
    from argosy.nn.layer.common import *
    from argosy.nn.layer.container import *
    from argosy.nn.layer.conv import *
    from argosy.nn.layer.loss import *
    from argosy.nn.layer.norm import *
    from argosy.nn.layer.pooling import *
    from argosy.nn.layer.transformer import *

_collect(globals(), activation, common, container, conv, loss, norm, pooling, transformer)
