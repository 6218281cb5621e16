"""How a value is recomputed for backward: in one cheap pass over memory, from the inputs of its node.

    relu(x), gelu(x), cast(x), x · y, …      the same op
    dropout(x)                               x · mask / (1 - p), with the saved mask
    norm(x), act(norm(x))                    batch_norm_recompute with the saved statistics, and the activation
    bn_act(x)                                bn_act_recompute

Random ops, reductions and matrix products are not recomputed.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.infer import infer
from argosy.engine.ir.symbols import are_equal
from argosy.engine.ops.batch_norm import batch_norm_recompute, sync_batch_norm
from argosy.engine.ops.bn_act import bn_act, bn_act_recompute
from argosy.engine.passes.fusion import getitems_of

aten = torch.ops.aten
_ACTIVATIONS = frozenset(
    {
        aten.relu.default,
        aten.tanh.default,
        aten.sigmoid.default,
        aten.silu.default,
        aten.gelu.default,
        aten.leaky_relu.default,
        aten.elu.default,
        aten.hardtanh.default,
        aten.hardswish.default,
        aten.hardsigmoid.default,
    }
)
_ELEMENTWISE = _ACTIVATIONS | {
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.mul.Scalar,
    aten.div.Tensor,
    aten.div.Scalar,
    aten.neg.default,
    aten.gt.Scalar,
    aten.ge.Scalar,
    aten.lt.Scalar,
    aten.le.Scalar,
    aten.where.self,
    aten.clone.default,
    aten._to_copy.default,
}
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """A chain of calls that recomputes a node's value."""

    node: fx.Node
    calls: tuple[Call, ...]
    """op, args, kwargs; every call but the first gets the result of the previous one as first argument."""

    @property
    def sources(self) -> list[fx.Node]:
        """The nodes that the calls read."""
        leaves = dict.fromkeys(tree_leaves(self.calls))
        return [leaf for leaf in leaves if isinstance(leaf, fx.Node)]

    def build(self, graph: fx.Graph) -> fx.Node:
        """Insert the calls at the graph's insertion point; returns the node of the recomputed value."""
        result: fx.Node | None = None
        for target, args, kwargs in self.calls:
            chained = args if result is None else (result, *args)
            result = graph.create_node(
                "call_function", target, chained, kwargs, f"{self.node.name}_recompute"
            )
            result.meta = {"role": "backward", "source": self.node.meta.get("source")}
            result.meta["val"] = infer(result)
        assert result is not None, f"{self.node.name} has a recipe without a call"
        return result


def recipe_for(node: fx.Node) -> Recipe | None:
    """How to recompute a node's value; None if that is expensive or impossible."""
    if node.target in _ELEMENTWISE:
        if node.target in _ACTIVATIONS and (norm := _norm_output(node.args[0], node)) is not None:
            return Recipe(node, (norm, (node.target, node.args[1:], dict(node.kwargs))))
        return Recipe(node, ((node.target, node.args, dict(node.kwargs)),))
    if node.target is not operator.getitem or node.args[1] != 0:
        return None
    producer = cast("fx.Node", node.args[0])
    if producer.target is aten.native_dropout.default:
        return _dropout(node, producer)
    call = _norm(node, producer)
    return None if call is None else Recipe(node, (call,))


def _norm_output(source: Any, reader: fx.Node) -> Call | None:
    """How to recompute the output of a batch norm that only `reader` reads, so that it is not stored itself."""
    is_output = isinstance(source, fx.Node) and source.target is operator.getitem and source.args[1] == 0
    if not is_output or list(source.users) != [reader]:
        return None
    return _norm(source, cast("fx.Node", source.args[0]))


def _norm(output: fx.Node, norm: fx.Node) -> Call | None:
    mean, invstd = (getitems_of(norm).get(number) for number in (1, 2))
    if mean is None or invstd is None:
        return None
    if norm.target is bn_act:
        x, weight, bias, other, _, act = norm.args
        return bn_act_recompute, (x, weight, bias, other, mean, invstd, act), {}
    is_training = norm.target is sync_batch_norm or (
        norm.target is aten.native_batch_norm.default and norm.args[5] is True
    )
    if not is_training:
        return None
    x, weight, bias = cast("tuple[fx.Node, Any, Any]", norm.args[:3])
    statistics = mean.meta["val"].dtype
    if x.meta["val"].dtype != statistics or not same_layout(x, output):
        return None
    return batch_norm_recompute, (x, weight, bias, mean, invstd), {}


def _dropout(output: fx.Node, dropout: fx.Node) -> Recipe | None:
    x, rate, train = dropout.args
    mask = getitems_of(dropout).get(1)
    if mask is None or not train or rate == 1:
        return None
    scale = 1 / (1 - cast("float", rate))
    return Recipe(output, ((aten.native_dropout_backward.default, (x, mask, scale), {}),))


def same_layout(a: fx.Node, b: fx.Node) -> bool:
    """True if two tensors have the same shape, strides and dtype for every feed."""
    x, y = a.meta["val"], b.meta["val"]
    return x.dtype == y.dtype and are_equal(x.shape, y.shape) and are_equal(x.stride(), y.stride())
