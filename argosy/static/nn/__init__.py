"""static.nn: layers with parameters, as functions; fluid.layers has them too."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.errors import UnsupportedError
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.framework.input_types import check_inputs
from argosy.framework.missing import missing
from argosy.static.debugging import py_func
from argosy.static.input import create_parameter
from argosy.static.nn.control_flow import case, cond, switch_case, while_loop
from argosy.static.nn.conv import conv2d, conv2d_transpose, conv3d, conv3d_transpose
from argosy.static.nn.input_types import INPUTS
from argosy.static.nn.linear import embedding, fc, prelu
from argosy.static.nn.norm import batch_norm, group_norm, instance_norm, layer_norm
from argosy.static.nn.products import bilinear_tensor_product, row_conv, spectral_norm
from argosy.static.nn.sampled_loss import nce
from argosy.static.nn.sequence_conv import sequence_conv, sequence_enumerate
from argosy.static.nn.sequence_pad import sequence_pad, sequence_unpad
from argosy.static.nn.sequence_pool import (
    sequence_first_step,
    sequence_last_step,
    sequence_pool,
    sequence_softmax,
)
from argosy.static.nn.sequence_rows import (
    sequence_concat,
    sequence_expand,
    sequence_expand_as,
    sequence_reshape,
    sequence_reverse,
    sequence_scatter,
    sequence_slice,
)

__all__ = [
    "batch_norm",
    "bilinear_tensor_product",
    "case",
    "cond",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "create_parameter",
    "embedding",
    "fc",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "nce",
    "prelu",
    "py_func",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
    "sparse_embedding",
    "spectral_norm",
    "switch_case",
    "while_loop",
]


def sparse_embedding(
    input: Variable,
    size: Sequence[int],
    padding_idx: int | None = None,
    is_test: bool = False,
    entry: Any = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Look up rows of a table on the parameter servers: `size` is [rows, columns].

    A server creates a row when it is first looked up, so that any int64 is a valid id. Without servers it is an
    ordinary embedding, with ids 0 to rows - 1.
    """
    if is_test:
        logger.warning(
            "sparse_embedding: is_test=True has no effect; clone(for_test=True) creates a program for testing"
        )
    if entry is not None:
        raise UnsupportedError(
            f"sparse_embedding: entry={entry!r} (admission of frequent rows only) is not supported; leave "
            "it out"
        )
    return embedding(
        input,
        size,
        is_sparse=True,
        is_distributed=True,
        padding_idx=padding_idx,
        param_attr=param_attr,
        dtype=dtype,
    )


check_inputs(globals(), INPUTS)
__getattr__ = missing(__name__, globals())
