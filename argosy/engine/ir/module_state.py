"""Runs a torch module on other tensors than its own, and reports what its forward changed besides its inputs.

    eager                                  recorded
    self.mu = 0.9 * self.mu + …            a buffer was assigned: the variable of the buffer gets that value
    self.attention = weights               a tensor was kept: it is a result of the call
    self.hidden = hidden                   … unless the next call reads it: state that no program has, an error
    self.steps += 1                        a number was changed: the program records the first call only

The module itself is as before afterwards.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

_PLAIN = (bool, int, float, str, type(None))
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_flat_weights", "_flat_weight_refs"})


@dataclass
class Changes:
    """What a call of a module changed in it."""

    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Path of a buffer -> the tensor that was assigned to it."""
    tensors: dict[tuple[nn.Module, str], Any] = field(default_factory=dict)
    """(submodule, attribute) -> the tensor, or the tree of tensors, that was assigned to it."""
    values: dict[tuple[nn.Module, str], tuple[Any, Any]] = field(default_factory=dict)
    """(submodule, attribute) -> a number, string or None before and after."""


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers by their paths; a tensor that has several paths is there under the first."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@contextmanager
def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[Changes]:
    """Inside, the module has these tensors for its parameters and buffers (by path, tied ones under one path)."""
    submodules = list(module.modules())
    saved = [
        (sub, dict(sub.__dict__), dict(sub._parameters), dict(sub._buffers), dict(sub._modules))
        for sub in submodules
    ]
    by_tensor = {id(tensor): tensors[path] for path, tensor in tensors_of(module).items()}
    paths = dict(module.named_modules())
    given: dict[str, Tensor] = {}
    for prefix, sub in paths.items():
        for store in (sub._parameters, sub._buffers):
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = by_tensor[id(tensor)]
                    given[f"{prefix}.{name}" if prefix else name] = by_tensor[id(tensor)]
    changes = Changes()
    try:
        yield changes
        _note_changes(changes, paths, saved, given)
    finally:
        for sub, attributes, parameters, buffers, modules in saved:
            for store, before in (
                (sub._parameters, parameters),
                (sub._buffers, buffers),
                (sub._modules, modules),
            ):
                store.clear()
                store.update(before)  # type: ignore[arg-type]  # each is of its own kind
            sub.__dict__.clear()
            sub.__dict__.update(attributes)


def _note_changes(
    changes: Changes,
    paths: dict[str, nn.Module],
    saved: list[tuple[Any, ...]],
    given: dict[str, Tensor],
) -> None:
    for prefix, sub in paths.items():
        for name, tensor in sub._buffers.items():
            path = f"{prefix}.{name}" if prefix else name
            if tensor is not None and path in given and tensor is not given[path]:
                changes.buffers[path] = tensor
    for sub, attributes, *_ in saved:
        for name, value in sub.__dict__.items():
            before = attributes.get(name)
            if name in _OWN or value is before:
                continue
            if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
                changes.tensors[(sub, name)] = value
            elif isinstance(value, _PLAIN) and isinstance(before, _PLAIN) and value != before:
                changes.values[(sub, name)] = (before, value)
