"""Calls that differ in evaluation mode: torch modules, and functions with `training=True`.

Only the module's code knows what it does in evaluation mode, so `clone(for_test=True)` runs the code again in that
mode, and replaces the nodes of the call by what it records:

    training   x ─▶ [ native_dropout ─▶ addmm ─▶ … ] ─▶ y        node.meta["call"] is the number of the call
    clone      x ─▶ [                   addmm ─▶ … ] ─▶ y
"""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

Substitute = Callable[[torch.Tensor], torch.Tensor]
_numbers = count()


def new_number() -> int:
    """A number for a call, unique in the process."""
    return next(_numbers)


@dataclass(frozen=True)
class RecordedCall:
    """One call, and how to record it for evaluation."""

    what: str
    """For messages: `Dropout2d called at train.py:12`."""
    inputs: tuple[tuple[torch.Tensor, fx.Node], ...]
    """The inputs of the call, with parameters and buffers, and their nodes at that time."""
    after: tuple[fx.Node, ...]
    """The nodes of the inputs after the call, which may have mutated them."""
    result: Any
    """The result of the call: a tree of fake tensors and other values."""
    evaluate: Callable[[Substitute], Any] | None
    """Runs the call in evaluation mode on substituted inputs. None: it was recorded in that mode already."""

    has_attributes: bool = False
    """True: `result` is (return value, tensors assigned to attributes)."""

    def shown(self, describe: Callable[[Any], str], result: Any) -> str:
        """A result as the user's code sees it, for a message."""
        return describe(result[0] if self.has_attributes and not result[1] else result)

    def with_nodes(self, node_map: dict[fx.Node, fx.Node]) -> "RecordedCall | None":
        """The call in a copy of its graph; None if the copy has no such nodes."""
        if not all(node in node_map for node in (*(n for _, n in self.inputs), *self.after)):
            return None
        inputs = tuple((fake, node_map[node]) for fake, node in self.inputs)
        return replace(self, inputs=inputs, after=tuple(node_map[node] for node in self.after))


def without_training(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a torch function with `training=False`, if it has such an argument and it was true."""
    signature = _signature(function)
    if signature is None:
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # invalid arguments: the call itself raises
        return None
    bound.apply_defaults()
    is_instance_norm = bound.arguments.get("use_input_stats") and bound.arguments["running_mean"] is not None
    name = "use_input_stats" if is_instance_norm else "training"
    if bound.arguments.get(name) is not True:
        return None
    bound.arguments[name] = False
    return bound.args, bound.kwargs


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a torch function with a training mode; None for all others."""
    if not (getattr(function, "__module__", "") or "").startswith("torch"):
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in function
        return None
    return signature if signature.parameters.keys() & {"training", "use_input_stats"} else None


def substituted(tree: Any, substitute: Substitute) -> Any:
    """A tree of arguments with its tensors substituted."""
    return tree_map_only(torch.Tensor, substitute, tree)
