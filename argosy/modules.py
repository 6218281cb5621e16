"""Lazy imports, and aliases of modules. Does not import torch."""

# SPDX-License-Identifier: Apache-2.0
import importlib
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def lazily(package: dict[str, Any], api: str) -> Callable[[str], Any]:
    """A `__getattr__` for the package with these globals: the first attribute access imports all of `api`."""

    def __getattr__(name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(name)  # Python looks up optional dunder names
        module = importlib.import_module(api)
        value = getattr(module, name)
        package.update({n: v for n, v in vars(module).items() if not n.startswith("_")})
        return value

    return __getattr__


class Alias(Loader):
    """A loader that returns an existing module under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has replaced it by the alias's spec
