"""Makes `import paddle` load Argosy in a data generator, without importing torch.

A light form of the import hook (argosy/paddle/hook.py), found on PYTHONPATH: the modules are the same objects.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from argosy.modules import Alias


class _Finder(MetaPathFinder):
    """Finds `paddle.…`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("paddle."):
            return None
        module = importlib.import_module("argosy" + fullname.removeprefix("paddle"))
        return ModuleSpec(fullname, Alias(module), is_package=hasattr(module, "__path__"))


sys.meta_path.insert(0, _Finder())
# The import system returns this entry of sys.modules.
sys.modules["paddle"] = importlib.import_module("argosy")
