"""What the fusion passes share: legality checks, statistics of matched patterns, small graph helpers."""

# SPDX-License-Identifier: Apache-2.0
import operator
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import fx

from argosy.engine import kernels
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.symbols import are_equal
from argosy.engine.passes.base import Pass, Report


@dataclass(frozen=True)
class Fusion(Pass):
    """A pass that rewrites to Argosy's C++ kernels; a no-op where they are unavailable."""

    live_out: frozenset[fx.Node] = frozenset()
    """Nodes whose values are read after the step, such as fetches; they must stay in the graph."""

    def run(self, graph: fx.Graph) -> Report:
        if (reason := kernels.unavailable()) is not None:
            return Report(0, f"nothing fused: the C++ kernels are unavailable ({reason})")
        return self.fuse(graph)

    def with_live_out(self, live_out: frozenset[fx.Node]) -> Self:
        return replace(self, live_out=live_out)

    @abstractmethod
    def fuse(self, graph: fx.Graph) -> Report:
        """Rewrite the graph in place."""

    def report(self, *tallies: "Tally") -> Report:
        """How many matches were fused, and why the others were not."""
        text = "; ".join(tally.text() for tally in tallies if tally.matched)
        notices = tuple(
            f"---  detected {tally.fused} subgraphs" for tally in tallies if tally.fused
        )  # Paddle's line
        return Report(sum(tally.fused for tally in tallies), text or "nothing to fuse", notices)


@dataclass
class Tally:
    """How many matches of one pattern there are, and why some are not fused."""

    pattern: str
    matched: int = 0
    fused: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """By reason."""
    example: dict[str, str] = field(default_factory=dict)
    """By reason, the name of the first node."""

    def count(self, node: fx.Node, reason: str) -> None:
        """Count one match; `reason` is why it is not fused, "" if it is."""
        self.matched += 1
        if reason:
            self.skipped[reason] += 1
            self.example.setdefault(reason, node.name)
        else:
            self.fused += 1

    def text(self) -> str:
        """33 of 53 batch norms fused, skipped: 20 because no activation follows (native_batch_norm_3, …)"""
        reasons = [
            f"{n} because {reason} ({self.example[reason]}{', …' if n > 1 else ''})"
            for reason, n in self.skipped.most_common(5)
        ]
        return f"{self.fused} of {self.matched} {self.pattern} fused" + (
            f", skipped: {', '.join(reasons)}" if reasons else ""
        )


def getitems_of(node: fx.Node) -> dict[int, fx.Node]:
    """The getitem nodes of an op with several outputs, by index."""
    return {user.args[1]: user for user in node.users if user.target is operator.getitem}  # type: ignore[misc]


def erase_stored(graph: fx.Graph, node: fx.Node, instead: fx.Node) -> None:
    """Erase a node of forward; if it is a checkpoint of recompute, `instead` becomes one."""
    if (mark := node.meta.get("checkpoint")) is not None:
        instead.meta["checkpoint"] = mark
    graph.erase_node(node)


def kernel_obstacle(elements: Sequence[Any], channels: Sequence[Any] = ()) -> str:
    """Why the C++ kernels do not support these inputs; "" if they do.

    `elements` must be float32, or all bfloat16; `channels` (weights of a norm) float32.
    """
    dtypes = {value.dtype for value in _values(elements)}
    if dtypes and dtypes not in ({torch.float32}, {torch.bfloat16}):
        return f"it is {' and '.join(sorted(str(d).removeprefix('torch.') for d in dtypes))}"
    for value in _values(channels):
        if value.dtype is not torch.float32:
            return f"its weights are {str(value.dtype).removeprefix('torch.')}"
    for value in _values((*elements, *channels)):
        if value.device.type != "cpu":
            return f"it runs on {value.device.type}"
    return ""


def _values(nodes: Sequence[Any]) -> list[torch.Tensor]:
    values = [node.meta["val"] for node in nodes if isinstance(node, fx.Node)]
    return [value for value in values if isinstance(value, torch.Tensor)]


def are_mutated_between(first: fx.Node, last: fx.Node, values: Sequence[Any]) -> bool:
    """True if a node between the two mutates the storage of one of these values."""
    memory = {storage(value) for value in values if isinstance(value, fx.Node)}
    node = first.next
    while node is not last:
        if any(storage(mutated) in memory for mutated in mutated_inputs(node)):
            return True
        node = node.next
    return False


def split_sum(gradient: fx.Node, live_out: frozenset[fx.Node]) -> tuple[Any, Any]:
    """The two summands of a gradient that is a plain sum with a single user; else the gradient and None."""
    if (
        gradient.target is torch.ops.aten.add.Tensor
        and len(gradient.users) == 1
        and gradient not in live_out
        and not gradient.kwargs
        and all(isinstance(a, fx.Node) and same_shape_and_dtype(a, gradient) for a in gradient.args)
    ):
        a, b = gradient.args
        return a, b
    return gradient, None


def erase_dead_sum(graph: fx.Graph, node: fx.Node) -> None:
    """Erase an addition that has no users left."""
    if not node.users and node.target is torch.ops.aten.add.Tensor:
        graph.erase_node(node)


def same_shape_and_dtype(node: fx.Node, other: fx.Node) -> bool:
    """True if two values have the same dtype and, for every feed, the same shape."""
    a, b = node.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and are_equal(a.shape, b.shape)


def is_bias_of(node: fx.Node, other: fx.Node) -> bool:
    """True if a value has the trailing dimensions of another, so that it broadcasts over the leading ones."""
    a, b = node.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and 0 < a.ndim < b.ndim and are_equal(a.shape, b.shape[b.ndim - a.ndim :])
