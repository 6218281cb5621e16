"""fc, embedding and prelu."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Constant
from argosy.framework.input_types import InputType
from argosy.framework.layer import LayerBuilder
from argosy.nn.functional.input import embedding as look_up


def fc(
    x: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    activation: str | None = None,
    name: str | None = None,
) -> Any:
    """activation(x · W + b), x flattened from num_flatten_dims on; several inputs, each with its W, are added.

    Weights `name`.w_0, …; bias `name`.b_0. Products are `name`.tmp_0, …, then their sum if there are several,
    then with bias, then activated; product and bias of a single input are one operator, its result .tmp_1.
    """
    inputs: list[Any] = list(x) if isinstance(x, list | tuple) else [x]
    InputType("x", "float", is_list=True).check("fc", inputs)
    attrs = list(weight_attr) if isinstance(weight_attr, list | tuple) else [weight_attr] * len(inputs)
    if not inputs or len(attrs) != len(inputs):
        raise ConfigError(
            f"fc: {len(inputs)} inputs and {len(attrs)} param_attr; give at least one input, and one each"
        )
    layer = LayerBuilder("fc", name)
    first = _flatten_dims(inputs[0], num_flatten_dims)
    weights = [
        layer.parameter(attr, [math.prod(each.shape[first:]), size], each.dtype)
        for each, attr in zip(inputs, attrs, strict=True)
    ]
    bias = layer.parameter(bias_attr, [size], inputs[0].dtype, is_bias=True)
    if len(inputs) == 1 and bias is not None:
        layer.skip_names(1)  # one addmm: the product without bias never exists
        out = layer.run(_affine, inputs[0], weights[0], first, bias)
    else:
        products = [layer.run(_affine, each, w, first, None) for each, w in zip(inputs, weights, strict=True)]
        out = products[0] if len(products) == 1 else layer.run(_total, products)
        out = out if bias is None else layer.run(torch.add, out, bias)
    return layer.activate(out, activation)


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
