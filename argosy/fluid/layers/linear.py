"""fc and embedding with the arguments of 1.x, matrix products and dropout."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.checks import integer
from argosy.framework.layer import apply
from argosy.nn.functional import common as functional
from argosy.static.nn import linear
from argosy.tensor.manipulation import squeeze


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Any:
    """act(x · W + b); see static.nn.fc, which has other names of arguments."""
    return linear.fc(input, size, num_flatten_dims, param_attr, bias_attr, act, name)


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    """The rows of a table `size` = [words, width]: ids [N, 1] give [N, width], ids [N, M, 1] [N, M, width].

    The id `padding_idx` gives zeros and gets no gradient. The gradient is dense; with is_sparse the ranks
    all-gather only the rows that they looked up.
    """
    if input.ndim < 2 or input.shape[-1] != 1:
        raise ConfigError(
            f"fluid.layers.embedding: ids {input.name!r} have shape {list(input.shape)} and must end in a 1, "
            "which is dropped; use static.nn.embedding for ids of any shape"
        )
    ids = squeeze(input, -1)
    return linear.embedding(ids, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Any:
    """The product of x and y as matrices: the first num_col_dims dimensions are rows, the rest columns."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        rows, columns = a.shape[:x_num_col_dims], b.shape[y_num_col_dims:]
        left = a.flatten(x_num_col_dims).flatten(0, x_num_col_dims - 1)
        right = b.flatten(y_num_col_dims).flatten(0, y_num_col_dims - 1)
        return torch.mm(left, right).reshape(*rows, *columns)

    for what, variable, dims in (("x", x, x_num_col_dims), ("y", y, y_num_col_dims)):
        if not 0 < dims < variable.ndim:
            raise ConfigError(
                f"mul: {what}_num_col_dims={dims} of a variable with {variable.ndim} dimensions; "
                f"use 1 to {variable.ndim - 1}"
            )
    return apply("mul", product, x, y, name=name)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Any:
    """alpha · x · y over the last two dimensions, optionally transposed first; two vectors give shape [1]."""
    for what, variable, transposed in (("x", x, transpose_x), ("y", y, transpose_y)):
        if transposed and variable.ndim < 2:
            raise ConfigError(
                f"matmul: transpose_{what}=True of a vector; reshape it to a matrix, or leave the argument out"
            )

    def product(a: Tensor, b: Tensor) -> Tensor:
        out = torch.matmul(a.mT if transpose_x else a, b.mT if transpose_y else b)
        out = out if alpha == 1.0 else out * alpha
        return out.reshape(1) if out.ndim == 0 else out

    return apply("matmul", product, x, y, name=name)


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool | None = None,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Any:
    """x with each element zero with probability dropout_prob, while training.

                           training           is_test, or clone(for_test=True)
    downgrade_in_infer     x · mask           x · (1 - p)
    upscale_in_train       x · mask / (1 - p) x

    With a `seed` other than 0 the mask is the same in every run.
    """
    modes = {"downgrade_in_infer": "downscale_in_infer", "upscale_in_train": "upscale_in_train"}
    if dropout_implementation not in modes:
        raise ConfigError(
            f"dropout: implementation {dropout_implementation!r} is not known; use {' or '.join(modes)}"
        )
    mode, own_seed = modes[dropout_implementation], integer("dropout: seed", seed or 0)
    return functional.dropout(x, dropout_prob, None, not is_test, mode, name, seed=own_seed)
