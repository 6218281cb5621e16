"""Variable names of torch tensors and modules: assigned at the first use, the same in every program.

A module that is called in a program for training and in another one for testing has one set of variables.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Container, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from argosy.engine.ir import names

_tensors: Any = WeakTensorKeyDictionary()
_prefixes: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()


def name_of(tensor: torch.Tensor, first: str) -> str:
    """The tensor's name; `first` if it has none yet."""
    return str(_tensors.setdefault(tensor, first))


def known_name(tensor: torch.Tensor) -> str | None:
    """The tensor's name; None if no program has used it."""
    name: str | None = _tensors.get(tensor)
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
