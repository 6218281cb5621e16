"""The import hook: `paddle` and everything below it are the modules of argosy, the very same objects.

    import paddle.nn      ──▶ finder: argosy.nn, imported ──▶ sys.modules["paddle.nn"] is argosy.nn

A name that argosy does not have is an error with its full name. Only `paddle` and `paddle.…` are affected.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import argosy
from argosy.engine import process_effects, version
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.framework.missing import missing, unknown
from argosy.modules import Alias

# Modules of argosy that are not part of Paddle's API.
_INTERNAL_MODULES = ("argosy.api", "argosy.engine", "argosy.modules", "argosy.paddle")


class PaddleFinder(MetaPathFinder):
    """Finds `paddle` and `paddle.…`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "paddle" and not fullname.startswith("paddle."):
            return None
        module = _find("argosy" + fullname.removeprefix("paddle"))
        if module is None:
            raise ModuleNotFoundError(_unknown_module_message(fullname), name=fullname)
        if module is argosy:
            _load_api()
        _explain_unknown_names(module)
        origin = module.__spec__.origin if module.__spec__ is not None else None
        return ModuleSpec(fullname, Alias(module), origin=origin, is_package=hasattr(module, "__path__"))


def install() -> None:
    """Make `import paddle` load argosy from now on; idempotent."""
    if any(isinstance(finder, PaddleFinder) for finder in sys.meta_path):
        return
    if "paddle" in sys.modules:
        raise ConfigError(
            f"paddle is already imported, from {getattr(sys.modules['paddle'], '__file__', None)}; "
            "call argosy.paddle.install() before the first `import paddle`"
        )
    if (other := PathFinder.find_spec("paddle")) is not None:
        location = other.origin or ", ".join(other.submodule_search_locations or [])
        logger.warning("another paddle is installed in %s; `import paddle` loads Argosy instead", location)
    process_effects.install("paddle-import", _insert_finder)


def uninstall() -> None:
    """Remove the hook, and `paddle` and its submodules from sys.modules; nothing if it is not installed."""
    process_effects.undo("paddle-import")


def _insert_finder() -> process_effects.Undo:
    finder = PaddleFinder()
    sys.meta_path.insert(0, finder)
    argosy.__version__ = version.PADDLE  # scripts compare paddle.__version__ with Paddle's versions

    def remove() -> None:
        sys.meta_path.remove(finder)
        argosy.__version__ = version.VERSION
        for name in [name for name in sys.modules if name == "paddle" or name.startswith("paddle.")]:
            del sys.modules[name]

    return remove


def _find(name: str) -> ModuleType | None:
    """The module of this name: a file of argosy, or a module that is an attribute of its parent (fluid.core)."""
    if name.startswith(_INTERNAL_MODULES):
        return None
    if importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    parent, _, child = name.rpartition(".")
    attribute = vars(sys.modules[parent]).get(child)
    return (
        attribute if isinstance(attribute, ModuleType) and attribute.__name__.startswith("argosy.") else None
    )


def _load_api() -> None:
    """Import argosy's API, and install the error for unknown names in every module."""
    _ = argosy.static
    for name, module in list(sys.modules.items()):
        if name.startswith("argosy.") and not name.startswith(_INTERNAL_MODULES):
            _explain_unknown_names(module)


def _explain_unknown_names(module: ModuleType) -> None:
    if "__getattr__" not in vars(module):
        vars(module)["__getattr__"] = missing(module.__name__, vars(module))


def _unknown_module_message(fullname: str) -> str:
    parent, _, _ = fullname.rpartition(".")
    package = sys.modules[parent]
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}
    if package is argosy:
        files -= {name.rpartition(".")[2] for name in _INTERNAL_MODULES}
    attributes = {name for name, value in vars(package).items() if isinstance(value, ModuleType)}
    known = sorted(
        name for name in files | (attributes & set(getattr(package, "__all__", []))) if name[0] != "_"
    )
    return unknown(f"argosy{fullname.removeprefix('paddle')}", known)
