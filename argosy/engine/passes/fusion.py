"""What the passes share that make one node of several: who may be fused, and what they say about it."""

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
from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ir.symbols import are_equal
from argosy.engine.passes.base import Pass, Report


@dataclass(frozen=True)
class Fusion(Pass):
    """A pass that needs kernels of our own. `kept` are nodes whose values are read after the step: fetches."""

    kept: frozenset[fx.Node] = frozenset()

    def run(self, graph: fx.Graph) -> Report:
        if (reason := kernels.unavailable()) is not None:
            return Report(0, f"nothing fused: no kernels of our own ({reason})")
        return self.fuse(graph)

    def keeping(self, kept: frozenset[fx.Node]) -> Self:
        return replace(self, kept=kept)

    @abstractmethod
    def fuse(self, graph: fx.Graph) -> Report:
        """Rewrite the graph in place."""

    def report(self, *tallies: "Tally") -> Report:
        """What was fused, and what was not and why."""
        text = "; ".join(tally.text() for tally in tallies if tally.found)
        said = tuple(
            f"---  detected {tally.fused} subgraphs" for tally in tallies if tally.fused
        )  # Paddle's line
        return Report(sum(tally.fused for tally in tallies), text or "nothing to fuse", said)


@dataclass
class Tally:
    """How many of one pattern were found, and why some were left alone."""

    what: str
    found: int = 0
    fused: int = 0
    left: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def note(self, node: fx.Node, reason: str) -> None:
        """Count one; `reason` says why it is left alone, "" if it is not."""
        self.found += 1
        if reason:
            self.left[reason] += 1
            self.first.setdefault(reason, node.name)
        else:
            self.fused += 1

    def text(self) -> str:
        """33 of 53 batch norms fused; left alone: 20 because no activation follows (native_batch_norm_3, …)"""
        said = [
            f"{n} because {why} ({self.first[why]}{', …' if n > 1 else ''})"
            for why, n in self.left.most_common(5)
        ]
        return f"{self.fused} of {self.found} {self.what} fused" + (
            f", left alone: {', '.join(said)}" if said else ""
        )


def items_of(node: fx.Node) -> dict[int, fx.Node]:
    """The nodes that take one of several results, by its number."""
    return {user.args[1]: user for user in node.users if user.target is operator.getitem}  # type: ignore[misc]


def suits_kernels(inputs: Sequence[Any]) -> str:
    """Why our kernels cannot take these inputs; "" if they can."""
    for node in inputs:
        value = node.meta["val"] if isinstance(node, fx.Node) else None
        if isinstance(value, torch.Tensor) and value.dtype is not torch.float32:
            return f"it is {str(value.dtype).removeprefix('torch.')}"
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return f"it runs on {value.device.type}"
    return ""


def are_changed_between(first: fx.Node, last: fx.Node, values: Sequence[Any]) -> bool:
    """True if a node between the two writes into the memory of one of these values."""
    memory = {storage(value) for value in values if isinstance(value, fx.Node)}
    node = first.next
    while node is not last:
        if any(storage(changed) in memory for changed in changed_inputs(node)):
            return True
        node = node.next
    return False


def two_gradients(gradient: fx.Node, kept: frozenset[fx.Node]) -> tuple[Any, Any]:
    """The two summands of a gradient, if it is a plain sum that one node alone reads; else itself and None."""
    if (
        gradient.target is torch.ops.aten.add.Tensor
        and len(gradient.users) == 1
        and gradient not in kept
        and not gradient.kwargs
        and all(isinstance(a, fx.Node) and are_alike(a, gradient) for a in gradient.args)
    ):
        a, b = gradient.args
        return a, b
    return gradient, None


def drop(graph: fx.Graph, node: fx.Node) -> None:
    """Take out a node that nobody reads any more."""
    if not node.users and node.target is torch.ops.aten.add.Tensor:
        graph.erase_node(node)


def are_alike(one: fx.Node, other: fx.Node) -> bool:
    """True if two values have the same type and, whatever is fed, the same shape."""
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and are_equal(a.shape, b.shape)


def is_bias_of(one: fx.Node, other: fx.Node) -> bool:
    """True if a value has the last dimensions of another, which it is repeated over."""
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and 0 < a.ndim < b.ndim and are_equal(a.shape, b.shape[b.ndim - a.ndim :])
