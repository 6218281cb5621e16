"""Scope: stores the values of persistable variables between runs."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from argosy.engine.collective import world
from argosy.engine.errors import ArgumentTypeError, ScopeError, nearest
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.runtime.narrow_copies import NarrowCopies

_LONGEST_PAUSE = 32


class ScopeTensor:
    """The result of `find_var(name).get_tensor()`: reads and sets the variable's value."""

    def __init__(self, scope: Scope, name: str) -> None:
        self._scope = scope
        self._name = name

    def tensor(self) -> torch.Tensor:
        """The tensor itself, not a copy."""
        return self._scope.get(self._name)

    def set(self, value: Any, place: Any = None) -> None:
        """Set a value of the same shape and dtype; a variable without a value accepts any."""
        new = torch.as_tensor(np.asarray(value) if not isinstance(value, torch.Tensor) else value)
        if self._name not in self._scope or self._scope.values_of()[self._name] is None:
            self._scope.put(self._name, new.detach().clone(), is_owned=True)
            return
        old = self._scope.peek(self._name)
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ScopeError(
                f"variable {self._name!r} is {dtype_name(old.dtype)}{list(old.shape)} and cannot be set to "
                f"{dtype_name(new.dtype)}{list(new.shape)}; give an array of its shape and dtype"
            )
        self._scope.write(self._name, new)

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._scope.peek(self._name).detach().cpu().numpy().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.numpy().astype(dtype) if dtype is not None else self.numpy()

    def shape(self) -> list[int]:
        return list(self._scope.peek(self._name).shape)

    _get_dims = shape  # Paddle's name

    def _dtype(self) -> torch.dtype:
        return self._scope.peek(self._name).dtype

    def __repr__(self) -> str:
        return f"ScopeTensor({self._name!r}, {self._scope.peek(self._name)!r})"


class ScopeVariable:
    """A variable of a scope, by name."""

    def __init__(self, scope: Scope, name: str) -> None:
        self.name = name
        self._scope = scope

    def get_tensor(self) -> ScopeTensor:
        return ScopeTensor(self._scope, self.name)

    def is_initialized(self) -> bool:
        return self._scope.values_of().get(self.name) is not None


@dataclass
class HostShare:
    """The variables of a scope that the ranks of a host have once (host_variables.py)."""

    shared: dict[str, torch.Tensor] = field(default_factory=dict)
    """Their tensors. Written by divided updates only; user code never gets them."""
    pause: int = 0
    """Steps until the ranks may share again."""
    next_pause: int = 1

    def reset(self) -> None:
        """Let the ranks share after the next step: another program has moved the variables, not the user."""
        self.pause, self.next_pause = 0, 1

    def back_off(self) -> None:
        """Wait for more steps than the last time, because sharing copies all variables."""
        self.pause, self.next_pause = self.next_pause, min(2 * self.next_pause, _LONGEST_PAUSE)


class Scope:
    """Values by name. A name may exist without a value (`var`).

    Reading a parameter waits for the all-gather that still writes it (collective/pending_gathers.py), and raises
    CollectiveError if that has failed.
    """

    def __init__(self) -> None:
        self._values: dict[str, torch.Tensor | None] = {}
        self.shared: dict[str, torch.Tensor] = {}
        """Tensors in memory that the ranks of a host share (shared_weights.py). Written by the sharded update only: any
        other write replaces the value by a private tensor, which the next sharded step copies into the shared memory.
        """
        self.host = HostShare()
        self.version = 0
        """Incremented when a tensor is replaced; holders of references to tensors compare it."""
        self.copies = NarrowCopies()
        """16-bit copies of weights, for steps in mixed precision."""
        self.exposed: set[str] = set()
        """Variables whose tensors user code may reference, and write through numpy or `.data`."""

    def values_of(self) -> dict[str, torch.Tensor | None]:
        world().gathers.wait_for()
        return self._values

    def find(self, name: str) -> torch.Tensor | None:
        """`peek`, or None if there is no value."""
        value = self._values.get(name)
        if value is not None:
            world().gathers.wait_for([value])
        return value

    def get(self, name: str) -> torch.Tensor:
        """The tensor itself, not a copy; raises ScopeError if there is none.

        Its memory is this rank's alone, except for a parameter under `strategy.sharding`.
        """
        if name in self.host.shared and self.is_shared(name):
            self.put(name, self.peek(name).clone())
        value = self.peek(name)
        self.exposed.add(name)
        return value

    def peek(self, name: str) -> torch.Tensor:
        """`get` for code that keeps no reference, and writes by torch ops in place only."""
        value = self.find(name)
        if value is None:
            raise ScopeError(f"variable {name!r} has no value in this scope{nearest(name, self._values)}")
        return value

    def put(self, name: str, value: torch.Tensor, is_owned: bool = False) -> None:
        """Set the tensor itself; `is_owned`: there is no other reference to it."""
        self._values[name] = value
        self.version += 1
        (self.exposed.discard if is_owned else self.exposed.add)(name)

    def is_shared(self, name: str) -> bool:
        """True if the value is in memory that the ranks of a host share."""
        value = self._values.get(name)
        return value is not None and (value is self.shared.get(name) or value is self.host.shared.get(name))

    def write(self, name: str, value: torch.Tensor) -> None:
        """Set a value of the same shape and dtype: in place, which keeps its memory format, unless it is shared."""
        with torch.no_grad():
            if self.is_shared(name):
                self.put(name, torch.empty_like(self.peek(name)), is_owned=True)
            self.peek(name).copy_(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def names(self) -> list[str]:
        return [name for name, value in self._values.items() if value is not None]

    local_var_names = names  # Paddle's name

    def var(self, name: str) -> ScopeVariable:
        """The variable of this name, created without a value if it does not exist."""
        self._values.setdefault(name, None)
        return ScopeVariable(self, name)

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of this name, or None."""
        return ScopeVariable(self, name) if name in self._values else None

    def erase(self, names: list[str]) -> None:
        for name in names:
            self._values.pop(name, None)
            self.copies.forget(name)
        self.version += 1


_global = Scope()


def global_scope() -> Scope:
    """The scope that `Executor.run` uses by default."""
    return _global


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make this scope the global one inside."""
    global _global  # noqa: PLW0603  (Paddle's interface: one scope is current in the process)
    if not isinstance(scope, Scope):
        raise ArgumentTypeError(f"scope_guard was given a {type(scope).__name__}; give a static.Scope")
    old, _global = _global, scope
    try:
        yield
    finally:
        _global = old
