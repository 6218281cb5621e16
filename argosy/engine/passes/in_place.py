"""Write a result into the memory of an input that is dead after the node.

    before    y = relu(x)                     x is dead after this
    after     y = relu_(x)

    before    s = add(a, b)                   the gradients of a fork in the network; a is dead after this
    after     s = add_(a, b)

Saves the memory of the result and a pass over it. Paddle's names for it are `enable_inplace` and
`enable_addto`. The results are the same.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import is_persistent, storage, storages
from argosy.engine.ir.infer import move_views
from argosy.engine.ir.symbols import are_equal
from argosy.engine.ops.add_act import act_backward, act_backward_, add_act, add_act_
from argosy.engine.ops.bn_act import bn_act_backward, bn_act_backward_
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten

# op -> (its in-place variant, the indices of the inputs that may be overwritten)
_IN_PLACE: dict[OpOverload, tuple[OpOverload, tuple[int, ...]]] = {
    aten.relu.default: (aten.relu_.default, (0,)),
    aten.add.Tensor: (aten.add_.Tensor, (0, 1)),
    aten.sub.Tensor: (aten.sub_.Tensor, (0,)),
    aten.mul.Tensor: (aten.mul_.Tensor, (0, 1)),
    aten.mul.Scalar: (aten.mul_.Scalar, (0,)),
    aten.div.Tensor: (aten.div_.Tensor, (0,)),
    aten.div.Scalar: (aten.div_.Scalar, (0,)),
    aten.sigmoid.default: (aten.sigmoid_.default, (0,)),
    aten.tanh.default: (aten.tanh_.default, (0,)),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, (0,)),
    add_act: (add_act_, (0, 1)),
    act_backward: (act_backward_, (0, 1)),
    bn_act_backward: (bn_act_backward_, (0, 1)),
}


@dataclass(frozen=True)
class InPlace(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "in_place"

    live_out: frozenset[fx.Node] = frozenset()
    """Nodes whose values are read after the step: fetches, the scope."""

    def run(self, graph: fx.Graph) -> Report:
        last_use = _last_uses(graph)
        fixed = {storage(n) for n in graph.nodes if is_persistent(n) or n in self.live_out}
        rewrites = Counter[str]()
        for place, node in enumerate(graph.nodes):
            if node.target not in _IN_PLACE:
                continue
            target, inputs = _IN_PLACE[node.target]
            for index in inputs:
                if _can_overwrite(node, index, place, last_use, fixed):
                    rewrites[node.target._opname] += 1
                    _overwrite(node, index, target, last_use, fixed)
                    break
        text = ", ".join(f"{count} {name}" for name, count in rewrites.most_common())
        return Report(rewrites.total(), text or "no input that is dead after its reader can be overwritten")


def _last_uses(graph: fx.Graph) -> dict[int | None, int]:
    """The position where each storage is used for the last time, through any view."""
    last: dict[int | None, int] = {}
    for place, node in enumerate(graph.nodes):
        for used in (node, *node.all_input_nodes):
            last.update(dict.fromkeys(storages(used), place))
    return last


def _can_overwrite(
    node: fx.Node, index: int, place: int, last_use: dict[int | None, int], fixed: set[int | None]
) -> bool:
    source = node.args[index]
    if not isinstance(source, fx.Node) or not isinstance(source.meta.get("val"), torch.Tensor):
        return False
    memory, old, new = storage(source), source.meta["val"], _result(node)
    if new is None:
        return False
    others = [a for i, a in enumerate(node.args) if i != index and isinstance(a, fx.Node)]
    return (
        memory not in fixed
        and last_use[memory] == place
        and all(storage(o) != memory for o in others)
        and old.dtype == new.dtype
        and are_equal(old.shape, new.shape)
        and are_equal(old.stride(), new.stride())
        and _has_whole_storage(old)
        and not (index == 1 and node.kwargs)  # a + 2 b is not b + 2 a
    )


def _result(node: fx.Node) -> torch.Tensor | None:
    """The result that overwrites the input: of bn_act_backward the gradient of `other` if it has one, else of x."""
    value = node.meta["val"]
    if node.target is bn_act_backward:
        value = value[0] if value[3] is None else value[3]
    return cast("torch.Tensor | None", value)


def _has_whole_storage(value: torch.Tensor) -> bool:
    """False for an expanded tensor or a view of a part of a larger one."""
    return are_equal([value.untyped_storage().nbytes()], [value.numel() * value.element_size()])


def _overwrite(
    node: fx.Node, index: int, target: OpOverload, last_use: dict[int | None, int], fixed: set[int | None]
) -> None:
    source = node.args[index]
    assert isinstance(source, fx.Node), f"{node.name} overwrites {source!r}"
    if index == 1:
        node.args = (source, node.args[0], *node.args[2:])
    old = _result(node)
    node.target = target
    if target is aten.threshold_backward.grad_input:
        node.kwargs = {"grad_input": source}
    # The result now aliases the input, whose storage must live as long as the result does.
    assert old is not None, f"{node.name} has no result to write into {source.name}"
    memory = old.untyped_storage()._cdata
    node.meta["val"] = _replaced(node.meta["val"], old, source.meta["val"])
    move_views(node, memory)
    last_use[storage(source)] = last_use[memory]
    if memory in fixed:
        fixed.add(storage(source))


def _replaced(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_replaced(part, old, new) for part in value)
    same = isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == old.untyped_storage()._cdata
    return new if same else value
