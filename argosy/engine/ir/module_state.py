"""Run a torch module on substituted tensors, and report the attributes that its forward changed.

    eager                                  recorded
    self.mu = 0.9 * self.mu + …            a buffer was assigned: the buffer's variable is updated
    self.attention = weights               a tensor was assigned: it is a result of the call
    self.hidden = hidden                   … unless the next call reads it: hidden state, an error
    self.steps += 1                        a number was changed: the program records the first call only
    self.outputs.append(y)                 a container got a tensor of the call: an error

The module is restored afterwards.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from argosy.engine.errors import ProgramError

_PLAIN = (bool, int, float, str, type(None))
_IGNORED = frozenset({*nn.Module().__dict__, "forward", "_flat_weights", "_flat_weight_refs"})


@dataclass
class ModuleChanges:
    """The changes that a call of a module made to it."""

    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Path of a buffer -> the tensor that was assigned to it."""
    tensors: dict[tuple[nn.Module, str], Any] = field(default_factory=dict)
    """(submodule, attribute) -> the tensor, or the tree of tensors, that was assigned to it."""
    values: dict[tuple[nn.Module, str], tuple[Any, Any]] = field(default_factory=dict)
    """(submodule, attribute) -> a number, string or None before and after."""


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers by path; a tensor with several paths is listed under the first."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@dataclass(frozen=True)
class _ModuleSnapshot:
    """The state of a submodule before the call."""

    path: str
    module: nn.Module
    attributes: dict[str, Any]
    stores: tuple[dict[str, Any], ...]
    """Its parameters, buffers and submodules by name."""
    containers: dict[str, Any]
    """Copies of the lists, dicts, sets and deques among the attributes."""

    @classmethod
    def of(cls, path: str, module: nn.Module) -> "_ModuleSnapshot":
        attributes = dict(module.__dict__)
        stores = tuple(dict(store) for store in _stores(module))
        containers = {
            name: copy(value)
            for name, value in attributes.items()
            if name not in _IGNORED and isinstance(value, list | dict | set | deque)
        }
        return cls(path, module, attributes, stores, containers)

    def restore(self) -> None:
        for store, before in zip(_stores(self.module), self.stores, strict=True):
            store.clear()
            store.update(before)
        self.module.__dict__.clear()
        self.module.__dict__.update(self.attributes)
        for name, before in self.containers.items():
            container = self.attributes[name]
            container.clear()
            getattr(container, "update" if isinstance(container, dict | set) else "extend")(before)

    def name(self, attribute: str) -> str:
        return f"{self.path}.{attribute}".strip(".")


def _stores(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return module._parameters, module._buffers, module._modules


@contextmanager
def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[ModuleChanges]:
    """Substitute these tensors for the module's parameters and buffers (by path, tied ones under one path)."""
    snapshots = [_ModuleSnapshot.of(path, sub) for path, sub in module.named_modules()]
    by_tensor = {id(tensor): tensors[path] for path, tensor in tensors_of(module).items()}
    substituted: dict[str, Tensor] = {}
    for before in snapshots:
        for store in _stores(before.module)[:2]:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = substituted[before.name(name)] = by_tensor[id(tensor)]
    changes = ModuleChanges()
    try:
        yield changes
        for before in snapshots:
            _check_parameters(before, substituted)
            _add_buffers(changes, before, substituted)
            _add_attributes(changes, before)
            _add_containers(changes, before)
    finally:
        for before in snapshots:
            before.restore()


def _check_parameters(before: _ModuleSnapshot, substituted: Mapping[str, Tensor]) -> None:
    module = before.module
    new = [n for n, tensor in module._parameters.items() if tensor is not substituted.get(before.name(n))]
    new += [
        name for name, child in module._modules.items() if child is not None and name not in before.stores[2]
    ]
    if new:
        raise ProgramError(
            f"forward sets parameter or submodule {before.name(new[0])!r}; a program has the parameters that a module "
            "has before the call: create it in __init__, or change its value in place"
        )


def _add_buffers(changes: ModuleChanges, before: _ModuleSnapshot, substituted: Mapping[str, Tensor]) -> None:
    for name, tensor in before.module._buffers.items():
        path = before.name(name)
        if tensor is None or tensor is substituted.get(path):
            continue
        if path not in substituted:
            raise ProgramError(
                f"forward sets buffer {path!r}, which has no tensor before the call; a program needs its shape from "
                "the start: register it with a tensor"
            )
        changes.buffers[path] = tensor


def _add_attributes(changes: ModuleChanges, before: _ModuleSnapshot) -> None:
    for name, value in before.module.__dict__.items():
        old = before.attributes.get(name)
        if name in _IGNORED or value is old:
            continue
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
            changes.tensors[(before.module, name)] = value
        elif isinstance(value, _PLAIN) and isinstance(old, _PLAIN) and value != old:
            changes.values[(before.module, name)] = (old, value)


def _add_containers(changes: ModuleChanges, before: _ModuleSnapshot) -> None:
    for name, old in before.containers.items():
        container = before.attributes[name]
        if _identities(container) == _identities(old):
            continue
        known = {id(leaf) for leaf in tree_leaves(old)}
        if any(isinstance(leaf, FakeTensor) and id(leaf) not in known for leaf in _leaves(container)):
            raise ProgramError(
                f"forward puts a tensor into {before.name(name)!r}, a {type(container).__name__} that outlives the "
                "call, which a program does not see; return the tensor from forward, or assign it to an attribute"
            )
        changes.values[(before.module, name)] = (old, copy(container))


def _identities(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return sorted(map(id, container)) if isinstance(container, set) else list(map(id, container))


def _leaves(container: Any) -> list[Any]:
    return tree_leaves(list(container) if isinstance(container, set | deque) else container)
