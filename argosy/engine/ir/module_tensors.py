"""The tensors of torch modules that are variables of a program.

net(x)   main program      variable fc.weight  ◀── ModuleTensors ──▶  net.fc.weight
         startup program   fc.weight = the tensor's value when the startup program runs

A tensor gets its variable's name at the first use, the same in every program: a module that is called in a program for
training and in another one for testing has one set of variables.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program


_names: Any = WeakTensorKeyDictionary()
_prefixes: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()


@dataclass(frozen=True)
class ModuleTensor:
    """A tensor of a module, whose value initializes a variable."""

    module: torch.nn.Module
    path: str
    """The tensor's name in the module: `fc.weight`."""
    tensor: torch.Tensor


class ModuleTensors:
    """A program's variables of torch tensors, in both directions; it keeps the tensors alive."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[torch.Tensor, str]] = {}  # id of the tensor -> (tensor, variable)
        self.sources: tuple[ModuleTensor, ...] = ()
        """In a startup program: the tensors that it reads when it runs."""

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._variables

    def __iter__(self) -> Iterator[tuple[torch.Tensor, str]]:
        return iter(self._variables.values())

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The variable of a tensor; None if it is none."""
        _, name = self._variables.get(id(tensor), (tensor, None))
        return name

    def tensor_of(self, name: str) -> torch.Tensor | None:
        """The tensor of a variable; None if the variable is not a tensor of a module."""
        return next((tensor for tensor, known in self._variables.values() if known == name), None)

    def add(self, tensor: torch.Tensor, name: str) -> None:
        self._variables[id(tensor)] = (tensor, name)

    def copy(self) -> ModuleTensors:
        copied = ModuleTensors()
        copied._variables, copied.sources = dict(self._variables), self.sources
        return copied


def name_of(tensor: torch.Tensor, first: str) -> str:
    """The tensor's name; `first` if it has none yet."""
    return str(_names.setdefault(tensor, first))


def known_name(tensor: torch.Tensor) -> str | None:
    """The tensor's name; None if no program has used it."""
    name: str | None = _names.get(tensor)
    return name


def prefix_of(module: torch.nn.Module, keys: Iterable[str], taken: Container[str]) -> str:
    """The prefix of a module's variable names: linear_0, or the next number if those are taken."""
    if module not in _prefixes:
        paths = list(keys)
        prefix = names.generate(type(module).__name__.lower())
        while any(f"{prefix}.{path}" in taken for path in paths):
            prefix = names.generate(type(module).__name__.lower())
        _prefixes[module] = prefix
    return _prefixes[module]


def value_of_tensor(program: Program, tensor: torch.Tensor) -> torch.Tensor:
    """The fake tensor of a real tensor's variable, created if the tensor requires gradients; else the tensor."""
    if isinstance(tensor, FakeTensor) or not (tensor.requires_grad or tensor in program.module_tensors):
        return tensor
    if not tensor.is_leaf:
        raise ProgramError(
            f"a tensor of shape {list(tensor.shape)} was computed in eager mode from tensors that require "
            "gradients, which do not flow there from a program; compute it inside of the program, or detach it"
        )
    with _disable_current_modes():
        return program.recorder.local(program.add_module_tensor(tensor, names.generate("parameter")).value)


def add_module_tensor(
    program: Program,
    startup: Program,
    tensor: torch.Tensor,
    name: str,
    module: torch.nn.Module | None,
) -> Variable:
    """Add a variable for a torch Parameter or buffer; `startup` initializes it with the tensor's value.

    A tensor has the same name in all programs: that of its first use. `name` is its path in `module`, if given.
    """
    path = name.partition(".")[2]
    name = name_of(tensor, name)
    if name in program.vars:
        raise ProgramError(
            f"a tensor of shape {list(tensor.shape)} is variable {name!r} of another program, and "
            f"{program.name!r} has another variable of that name; build both programs under one "
            "unique_name.guard, or none"
        )
    is_parameter = isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad
    variable = program.state(
        name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad if is_parameter else None
    )
    program.module_tensors.add(tensor, name)
    if name not in startup.vars:
        startup.define(name, startup.recorder.constant(tensor).meta["val"].clone)
        if module is not None:
            startup.module_tensors.sources += (ModuleTensor(module, path, tensor),)
    return variable
