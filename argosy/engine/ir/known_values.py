"""The integers that a Variable is known to have while the program is built, for arguments such as reshape's shape.

batch = shape(x)[0]                   [N]            a size of a feed, which is a symbol
shape = concat([batch * 2, three])    [2*N, 3]       arithmetic on sizes and constants
ids = data("ids", [4], "int64")       unknown        depends on what is fed
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import value_of_constant
from argosy.engine.ir.variable import Variable

aten = torch.ops.aten
Known = NDArray[np.object_]


def known_values(variable: Variable) -> list[Any] | None:
    """The elements of an integer Variable in order, numbers or symbols of sizes; None if one depends on data."""
    if variable.sizes is not None:
        return list(variable.sizes)
    if variable.dtype.is_floating_point:
        return None
    try:
        return list(_Evaluation(variable).value(variable.node).flat)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """The value of a node is not known."""


class _Evaluation:
    """Computes nodes on arrays of objects: numbers, and symbols of sizes."""

    def __init__(self, variable: Variable) -> None:
        self.constants = variable.program.recorder.constants
        graph = variable.program.graph
        self.mutated = {storage(source) for node in graph.nodes for source in mutated_inputs(node)}
        self.known: dict[fx.Node, Any] = {}

    def value(self, node: fx.Node) -> Any:
        """An array, or a size; raises _UnknownError."""
        if node not in self.known:
            self.known[node] = self._computed(node)
        return self.known[node]

    def _computed(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            return value
        if storage(node) in self.mutated:
            raise _UnknownError
        function = _FUNCTIONS.get(node.target)
        if function is not None and not value.dtype.is_floating_point:
            return function(*(self._argument(arg) for arg in node.args))
        constant = value_of_constant(node, self.constants)
        if constant is None:
            raise _UnknownError
        return _array(constant.tolist()).reshape(tuple(constant.shape))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._argument(part) for part in value]
        return self.value(value) if isinstance(value, fx.Node) else value


def _array(value: Any) -> Known:
    return np.asarray(value, dtype=object)


def _full(size: list[int], value: Any) -> Known:
    filled = np.empty(tuple(size), dtype=object)
    filled[...] = value
    return filled


def _slice(x: Known, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Known:
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _same(x: Known, *_: Any) -> Known:
    return x


_FUNCTIONS: dict[Any, Callable[..., Known]] = {
    aten.full.default: _full,
    aten.stack.default: lambda parts, dim=0: np.stack(parts, dim),
    aten.cat.default: lambda parts, dim=0: np.concatenate(parts, dim),
    aten.unsqueeze.default: np.expand_dims,
    aten.view.default: lambda x, size: x.reshape(size),
    aten._unsafe_view.default: lambda x, size: x.reshape(size),
    aten.reshape.default: lambda x, size: x.reshape(size),
    aten.squeeze.dims: lambda x, dims: np.squeeze(x, tuple(dims)),
    aten.select.int: lambda x, dim, index: _array(np.take(x, index, dim)),
    aten.slice.Tensor: _slice,
    aten.clone.default: _same,
    aten.alias.default: _same,
    aten._to_copy.default: _same,
    aten.expand.default: lambda x, size: np.broadcast_to(x, tuple(size)),
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), lambda x, y: _array(x + y)),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), lambda x, y: _array(x - y)),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), lambda x, y: _array(x * y)),
    aten.floor_divide.default: lambda x, y: _array(x // y),
}
"""An op -> the same on arrays of objects."""
