"""fluid.layers: the layer functions of Paddle 1.x, with its argument names and defaults."""

# SPDX-License-Identifier: Apache-2.0
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from argosy.fluid.layers import (
    activation,
    control_flow,
    crf,
    elementwise,
    image_layers,
    io,
    learning_rate_scheduler,
    linear,
    loss,
    norm,
    pool,
    ranking_loss,
    recurrent_units,
    reduction,
    rnn,
    selection,
    sequence,
    shapes,
    static_rnn,
    tensor_array,
    variables,
)
from argosy.fluid.layers.input_types import INPUTS as _INPUTS
from argosy.fluid.layers.submodules import add_submodules as _add_submodules
from argosy.framework.input_types import check_inputs as _check_inputs
from argosy.framework.missing import missing as _missing
from argosy.metric import accuracy as accuracy
from argosy.metric import auc as auc
from argosy.modules import collect as _collect
from argosy.modules import submodules as _submodules
from argosy.nn.functional import dice_loss as dice_loss
from argosy.nn.functional import elu as elu
from argosy.nn.functional import gather_tree as gather_tree
from argosy.nn.functional import gelu as gelu
from argosy.nn.functional import log_loss as log_loss
from argosy.nn.functional import log_sigmoid as logsigmoid  # noqa: F401  (the name in 1.x)
from argosy.nn.functional import npair_loss as npair_loss
from argosy.nn.functional import relu as relu
from argosy.nn.functional import sigmoid as sigmoid
from argosy.nn.functional import softplus as softplus
from argosy.nn.functional import softsign as softsign
from argosy.nn.functional import square_error_cost as square_error_cost
from argosy.nn.functional import tanh as tanh
from argosy.nn.functional import tanhshrink as tanh_shrink  # noqa: F401  (the name in 1.x)
from argosy.nn.functional import unfold as unfold
from argosy.optimizer.fluid_decay import cosine_decay as cosine_decay
from argosy.optimizer.fluid_decay import exponential_decay as exponential_decay
from argosy.optimizer.fluid_decay import inverse_time_decay as inverse_time_decay
from argosy.optimizer.fluid_decay import linear_lr_warmup as linear_lr_warmup
from argosy.optimizer.fluid_decay import natural_exp_decay as natural_exp_decay
from argosy.optimizer.fluid_decay import noam_decay as noam_decay
from argosy.optimizer.fluid_decay import piecewise_decay as piecewise_decay
from argosy.optimizer.fluid_decay import polynomial_decay as polynomial_decay
from argosy.static.debugging import Assert as Assert
from argosy.static.debugging import Print as Print
from argosy.static.debugging import py_func as py_func
from argosy.static.input import create_global_var as create_global_var
from argosy.static.input import create_parameter as create_parameter
from argosy.static.nn import batch_norm as batch_norm
from argosy.static.nn import bilinear_tensor_product as bilinear_tensor_product
from argosy.static.nn import case as case
from argosy.static.nn import cond as cond
from argosy.static.nn import conv2d as conv2d
from argosy.static.nn import conv2d_transpose as conv2d_transpose
from argosy.static.nn import conv3d as conv3d
from argosy.static.nn import conv3d_transpose as conv3d_transpose
from argosy.static.nn import group_norm as group_norm
from argosy.static.nn import instance_norm as instance_norm
from argosy.static.nn import layer_norm as layer_norm
from argosy.static.nn import nce as nce
from argosy.static.nn import prelu as prelu
from argosy.static.nn import row_conv as row_conv
from argosy.static.nn import sequence_concat as sequence_concat
from argosy.static.nn import sequence_conv as sequence_conv
from argosy.static.nn import sequence_enumerate as sequence_enumerate
from argosy.static.nn import sequence_expand as sequence_expand
from argosy.static.nn import sequence_expand_as as sequence_expand_as
from argosy.static.nn import sequence_first_step as sequence_first_step
from argosy.static.nn import sequence_last_step as sequence_last_step
from argosy.static.nn import sequence_pad as sequence_pad
from argosy.static.nn import sequence_pool as sequence_pool
from argosy.static.nn import sequence_reshape as sequence_reshape
from argosy.static.nn import sequence_reverse as sequence_reverse
from argosy.static.nn import sequence_scatter as sequence_scatter
from argosy.static.nn import sequence_slice as sequence_slice
from argosy.static.nn import sequence_softmax as sequence_softmax
from argosy.static.nn import sequence_unpad as sequence_unpad
from argosy.static.nn import spectral_norm as spectral_norm
from argosy.static.nn import switch_case as switch_case
from argosy.static.nn import while_loop as while_loop
from argosy.static.nn.sequence_pad import sequence_mask as sequence_mask
from argosy.static.nn.sequence_rows import lod_reset as lod_reset
from argosy.tensor import abs as abs
from argosy.tensor import acos as acos
from argosy.tensor import asin as asin
from argosy.tensor import atan as atan
from argosy.tensor import cast as cast
from argosy.tensor import ceil as ceil
from argosy.tensor import clip as clip
from argosy.tensor import cos as cos
from argosy.tensor import cosh as cosh
from argosy.tensor import diag as diag
from argosy.tensor import erf as erf
from argosy.tensor import exp as exp
from argosy.tensor import floor as floor
from argosy.tensor import is_empty as is_empty
from argosy.tensor import linspace as linspace
from argosy.tensor import log as log
from argosy.tensor import logical_and as logical_and
from argosy.tensor import logical_not as logical_not
from argosy.tensor import logical_or as logical_or
from argosy.tensor import logical_xor as logical_xor
from argosy.tensor import multiplex as multiplex
from argosy.tensor import rank as rank
from argosy.tensor import reciprocal as reciprocal
from argosy.tensor import reverse as reverse
from argosy.tensor import round as round
from argosy.tensor import rsqrt as rsqrt
from argosy.tensor import scale as scale
from argosy.tensor import scatter_nd as scatter_nd
from argosy.tensor import shape as shape
from argosy.tensor import shard_index as shard_index
from argosy.tensor import sign as sign
from argosy.tensor import sin as sin
from argosy.tensor import sinh as sinh
from argosy.tensor import slice as slice
from argosy.tensor import sqrt as sqrt
from argosy.tensor import square as square
from argosy.tensor import stack as stack
from argosy.tensor import stanh as stanh
from argosy.tensor import transpose as transpose
from argosy.tensor import unstack as unstack

if _TYPE_CHECKING:  # at run time `collect` adds the names
    from argosy.fluid.layers.activation import *
    from argosy.fluid.layers.control_flow import *
    from argosy.fluid.layers.crf import *
    from argosy.fluid.layers.elementwise import *
    from argosy.fluid.layers.image_layers import *
    from argosy.fluid.layers.io import *
    from argosy.fluid.layers.learning_rate_scheduler import *
    from argosy.fluid.layers.linear import *
    from argosy.fluid.layers.loss import *
    from argosy.fluid.layers.norm import *
    from argosy.fluid.layers.pool import *
    from argosy.fluid.layers.ranking_loss import *
    from argosy.fluid.layers.recurrent_units import *
    from argosy.fluid.layers.reduction import *
    from argosy.fluid.layers.rnn import *
    from argosy.fluid.layers.selection import *
    from argosy.fluid.layers.sequence import *
    from argosy.fluid.layers.shapes import *
    from argosy.fluid.layers.static_rnn import *
    from argosy.fluid.layers.tensor_array import *
    from argosy.fluid.layers.variables import *

_collect(globals(), activation, elementwise, image_layers, linear, loss, norm, pool, ranking_loss, reduction)
_collect(globals(), selection, shapes, recurrent_units, variables)
_collect(globals(), tensor_array, control_flow, crf, io, learning_rate_scheduler, rnn, sequence, static_rnn)
_check_inputs(globals(), _INPUTS)
__getattr__ = _submodules(__name__, ("collective",), _missing(__name__, globals()))
_add_submodules(_sys.modules[__name__])
