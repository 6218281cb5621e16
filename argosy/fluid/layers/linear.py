"""fc, embedding, prelu, matrix products and dropout."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers.skip_names import skip_names
from argosy.framework.initializer import Constant
from argosy.framework.layer import LayerBuilder, apply
from argosy.nn.functional import common as functional
from argosy.nn.functional.input import embedding as look_up
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
    """act(x · W + b), x flattened from num_flatten_dims on; several inputs, each with its W, are added.

    Weights `name`.w_0, …; bias `name`.b_0. Products are `name`.tmp_0, …, then their sum if there are several,
    then with bias, then activated; product and bias of a single input are one operator, its result .tmp_1.
    """
    inputs = [input] if isinstance(input, Variable) else list(input)
    attrs = list(param_attr) if isinstance(param_attr, list | tuple) else [param_attr] * len(inputs)
    if not inputs or len(attrs) != len(inputs):
        raise ConfigError(
            f"fc: {len(inputs)} inputs and {len(attrs)} param_attr; give at least one input, and one each"
        )
    layer = LayerBuilder("fc", name)
    first = _flatten_dims(inputs[0], num_flatten_dims)
    weights = [
        layer.parameter(attr, [math.prod(x.shape[first:]), size], x.dtype)
        for x, attr in zip(inputs, attrs, strict=True)
    ]
    bias = layer.parameter(bias_attr, [size], inputs[0].dtype, is_bias=True)
    if len(inputs) == 1 and bias is not None:
        skip_names(layer, 1)  # one addmm: the product without bias never exists
        out = layer.run(_affine, inputs[0], weights[0], first, bias)
    else:
        products = [layer.run(_affine, x, w, first, None) for x, w in zip(inputs, weights, strict=True)]
        out = products[0] if len(products) == 1 else layer.run(_total, products)
        out = out if bias is None else layer.run(torch.add, out, bias)
    return layer.activate(out, act)


def _flatten_dims(x: Variable, dims: int) -> int:
    first = dims + x.ndim if dims < 0 else dims
    if not 0 < first < x.ndim:
        raise ConfigError(
            f"fc: num_flatten_dims={dims} of an input with {x.ndim} dimensions; use 1 to {x.ndim - 1}, or -1"
        )
    return first


def _affine(x: Tensor, weight: Tensor, first: int, bias: Tensor | None) -> Tensor:
    rows = x.flatten(first).flatten(0, first - 1)
    out = torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)
    return out if first == 1 else out.reshape(*x.shape[:first], weight.shape[1])


def _total(values: Sequence[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


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
    return embedding_of_any_shape(ids, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def embedding_of_any_shape(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    """The rows of a table `size` = [words, width] for ids of any shape: that shape + [width].

    The id `padding_idx` gives zeros and gets no gradient. With is_sparse the ranks all-gather only the rows that they
    looked up. In a job with parameter servers, a table with is_sparse or is_distributed is stored on the servers.
    """
    if len(size) != 2:
        raise ConfigError(f"embedding: size={list(size)}; give [number of words, width]")
    layer = LayerBuilder("embedding")
    table = layer.parameter(param_attr, list(size), dtype)
    if is_distributed:
        table.is_distributed = True
    return look_up(input, table, padding_idx, is_sparse or is_distributed, layer.name)


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Any:
    """x where positive, else alpha · x with a learned alpha for "all", for each "channel" or "element"."""
    shapes = {"all": [1], "channel": [1, *x.shape[1:2], 1, 1], "element": [1, *x.shape[1:]]}
    if mode not in shapes:
        raise ConfigError(f"prelu: mode={mode!r} is not known; use 'all', 'channel' or 'element'")
    layer = LayerBuilder("prelu", name)
    alpha = layer.parameter(param_attr, shapes[mode], x.dtype, default_initializer=Constant(0.25))

    def slope(v: Tensor, a: Tensor) -> Tensor:
        a = a.reshape(1, -1, *[1] * (v.ndim - 2)) if mode == "channel" else a
        return torch.where(v > 0, v, a * v)

    return layer.run(slope, x, alpha)


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
    """
    modes = {"downgrade_in_infer": "downscale_in_infer", "upscale_in_train": "upscale_in_train"}
    if dropout_implementation not in modes:
        raise ConfigError(
            f"dropout: implementation {dropout_implementation!r} is not known; use {' or '.join(modes)}"
        )
    if seed:
        raise ConfigError(f"dropout: seed={seed} of one layer is not supported; set Program.random_seed")
    return functional.dropout(x, dropout_prob, None, not is_test, modes[dropout_implementation], name)
