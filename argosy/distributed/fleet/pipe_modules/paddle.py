"""`import paddle` in a data generator gives Argosy, without torch and without what a data generator does not need.

A light form of the import hook (argosy/paddle/hook.py), found through PYTHONPATH: the modules are the same objects.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Alias(Loader):
    """Gives a module that is there already another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has put the alias's there


class _Finder(MetaPathFinder):
    """Finds `paddle.…`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("paddle."):
            return None
        module = importlib.import_module("argosy" + fullname.removeprefix("paddle"))
        return ModuleSpec(fullname, _Alias(module), is_package=hasattr(module, "__path__"))


sys.meta_path.insert(0, _Finder())
sys.modules["paddle"] = importlib.import_module("argosy")  # the import system takes what is there
