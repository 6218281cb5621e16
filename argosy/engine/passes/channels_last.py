"""Run the convolutions of an NCHW program in channels_last memory.

    before    y = convolution(x, w)                     x: feed, w: parameter, both contiguous
    after     x' = clone(x, memory_format=channels_last)
              y = convolution(x', w)                    w is stored as channels_last in the scope

Values and shapes stay the same; only the strides change. oneDNN's convolutions and the batch norm kernels are faster
in channels_last, and the ops after a convolution preserve its memory format. A `view` that is invalid for the new
strides gets a contiguous copy.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.strides import VIEWS, convert, propagate
from argosy.engine.ops.dgc import dgc_all_reduce
from argosy.engine.ops.merge_gradients import accumulate, merged
from argosy.engine.ops.sharding import all_gather_shards, shard_rows
from argosy.engine.ops.updates import FUSED
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten


@dataclass(frozen=True)
class ChannelsLast(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "channels_last"

    def run(self, graph: fx.Graph) -> Report:
        convolutions = [
            n for n in graph.nodes if n.target is aten.convolution.default and n.meta["val"].ndim == 4
        ]
        if not convolutions:
            return Report(0, "no 2-D convolution")
        if reason := _obstacle(graph):
            return Report(0, f"{len(convolutions)} convolutions left alone: {reason}")
        states = _states(graph, convolutions)
        for node in states:
            node.meta["memory_format"] = torch.channels_last
            with node.meta["val"].fake_mode:
                node.meta["val"] = torch.empty_like(node.meta["val"], memory_format=torch.channels_last)
        converted, reshaped = _propagate(graph, set(convolutions), states)
        return Report(
            len(convolutions),
            f"{len(convolutions)} convolutions, {converted} inputs converted, {len(states)} variables of the scope, "
            f"{reshaped} copies for views",
        )


def _obstacle(graph: fx.Graph) -> str | None:
    """What makes strides visible to the program, so that they must not change."""
    for node in graph.nodes:
        if node.target is aten.as_strided.default:
            return f"{node.name} reads memory by its strides"
    viewed = {storage(n) for n in graph.nodes if n.target in VIEWS}
    for node in graph.nodes:
        if node.meta["role"] == "communicate":
            continue  # readers of the sum read this node's value, not the mutated input
        if any(storage(n) in viewed and n.op != "placeholder" for n in mutated_inputs(node)):
            return f"{node.name} mutates memory that a view aliases"
    return None


def _states(graph: fx.Graph, convolutions: list[fx.Node]) -> list[fx.Node]:
    """The convolutions' weights, and the optimizer state that is updated together with them."""
    weights = {w for n in convolutions if _is_plain_weight(w := _without_cast(n.args[1]))}
    states = dict.fromkeys(n for n in graph.nodes if n in weights)
    for updated in (together for node in graph.nodes for together in _updated_together(node)):
        for weight in [n for n in updated if _without_rows(n) in weights]:
            shape = weight.meta["val"].shape
            states.update(dict.fromkeys(_without_rows(n) for n in updated if n.meta["val"].shape == shape))
    return list(states)


def _without_rows(node: fx.Node) -> fx.Node:
    """The variable of which a sharded update mutates some rows, or the node itself."""
    return cast("fx.Node", node.args[0]) if node.target is shard_rows else node


def _updated_together(node: fx.Node) -> Iterator[tuple[fx.Node, ...]]:
    """The inputs that a node mutates; for a fused update, each parameter with its own state.

    The accumulator of a weight's gradient belongs to the weight.
    """
    if node.target is all_gather_shards:
        return
    if node.target is dgc_all_reduce:
        yield from zip(*cast("list[list[fx.Node]]", node.args[1:4]), strict=True)
        return
    if node.target in (accumulate, merged):
        totals, gradients = (a if isinstance(a, list) else [a] for a in node.args[:2])
        for total, gradient in zip(totals, gradients, strict=True):
            if (weight := _weight_of(_without_cast(gradient))) is not None:
                yield cast("fx.Node", total), weight
        return
    if node.target not in FUSED.values():
        yield tuple(mutated_inputs(node))
        return
    arguments = cast("OpOverload", node.target)._schema.arguments
    lists = [
        cast("list[fx.Node]", value)
        for value, argument in zip(node.args, arguments, strict=False)  # `skip` is a keyword
        if value and argument.alias_info is not None and argument.alias_info.is_write
    ]
    yield from zip(*lists, strict=True)


def _without_cast(weight: Any) -> fx.Node:
    """The source of a weight that autocast has cast, or the weight itself."""
    return cast("fx.Node", weight.args[0] if weight.target is aten._to_copy.default else weight)


def _weight_of(gradient: fx.Node) -> fx.Node | None:
    """The weight of a convolution that this is the gradient of; None if it is none."""
    if gradient.target is not operator.getitem or gradient.args[1] != 1:
        return None
    producer = cast("fx.Node", gradient.args[0])
    is_convolution = producer.target is aten.convolution_backward.default
    return _without_cast(producer.args[2]) if is_convolution else None


def _is_plain_weight(node: fx.Node) -> bool:
    """True for a variable of the scope without views."""
    return bool(node.op == "placeholder") and not any(user.target in VIEWS for user in node.users)


def _propagate(graph: fx.Graph, convolutions: set[fx.Node], states: list[fx.Node]) -> tuple[int, int]:
    """Convert the inputs of convolutions that are not channels_last, and infer the strides that depend on them."""
    converted: dict[fx.Node, fx.Node] = {}

    def before(node: fx.Node) -> bool:
        inputs = node.args[:2]
        if node in convolutions:
            source: Any = node.args[0]
            is_last = source.meta["val"].is_contiguous(memory_format=torch.channels_last)
            if source not in converted and not is_last:
                converted[source] = convert(graph, source, node, torch.channels_last)
            if source in converted:
                node.update_arg(0, converted[source])
        if node.target is aten.convolution_backward.default:
            node.update_arg(1, converted.get(cast("fx.Node", node.args[1]), node.args[1]))
        return any(new is not old for new, old in zip(node.args, inputs, strict=False))

    reshaped = propagate(graph, states, before)
    return len(converted), reshaped
