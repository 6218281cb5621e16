"""The layers of nn."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.modules import collect as _collect
from argosy.nn.layer import (
    activation,
    common,
    container,
    conv,
    distance,
    loss,
    norm,
    pooling,
    rnn,
    rnn_cells,
    transformer,
    transformer_decoder,
)
from argosy.nn.layer.layers import Layer as Layer

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.nn.layer.activation import *
    from argosy.nn.layer.common import *
    from argosy.nn.layer.container import *
    from argosy.nn.layer.conv import *
    from argosy.nn.layer.distance import *
    from argosy.nn.layer.loss import *
    from argosy.nn.layer.norm import *
    from argosy.nn.layer.pooling import *
    from argosy.nn.layer.rnn import *
    from argosy.nn.layer.rnn_cells import *
    from argosy.nn.layer.transformer import *
    from argosy.nn.layer.transformer_decoder import *

_collect(
    globals(),
    activation,
    common,
    container,
    conv,
    distance,
    loss,
    norm,
    pooling,
    rnn,
    rnn_cells,
    transformer,
    transformer_decoder,
)
