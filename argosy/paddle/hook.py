"""The import hook: `paddle` and everything below it are the modules of argosy, the very same objects.

    import paddle.nn      ──▶ finder: argosy.nn, imported ──▶ sys.modules["paddle.nn"] is argosy.nn

A name that argosy does not have is an error with its full name. Nothing but `paddle` and `paddle.…` is touched.
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
from argosy.engine.errors import ConfigError
from argosy.engine.ir.nearest import nearest
from argosy.engine.log import logger
from argosy.framework.missing import missing
from argosy.modules import Alias

# Parts of argosy that are no part of Paddle's API.
_NOT_PADDLES = ("argosy.api", "argosy.engine", "argosy.modules", "argosy.paddle")


class PaddleFinder(MetaPathFinder):
    """Finds `paddle` and `paddle.…`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "paddle" and not fullname.startswith("paddle."):
            return None
        module = _find("argosy" + fullname.removeprefix("paddle"))
        if module is None:
            raise ModuleNotFoundError(_absent(fullname), name=fullname)
        if module is argosy:
            _load_api()
        _explain_absent_names(module)
        return ModuleSpec(fullname, Alias(module), is_package=hasattr(module, "__path__"))


def install() -> None:
    """From here on `import paddle` gives argosy; a second call changes nothing."""
    if any(isinstance(finder, PaddleFinder) for finder in sys.meta_path):
        return
    if "paddle" in sys.modules:
        raise ConfigError(
            f"paddle is imported already, from {getattr(sys.modules['paddle'], '__file__', None)}; "
            "call argosy.paddle.install() before the first `import paddle`"
        )
    if (other := PathFinder.find_spec("paddle")) is not None:
        places = other.origin or ", ".join(other.submodule_search_locations or [])
        logger.warning("there is a paddle in %s; `import paddle` gives Argosy instead", places)
    sys.meta_path.insert(0, PaddleFinder())


def _find(name: str) -> ModuleType | None:
    """The module of this name: a file of argosy, or a module that its parent holds (fluid.core)."""
    if name.startswith(_NOT_PADDLES):
        return None
    if importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    parent, _, own = name.rpartition(".")
    held = vars(sys.modules[parent]).get(own)
    return held if isinstance(held, ModuleType) and held.__name__.startswith("argosy.") else None


def _load_api() -> None:
    """Load what argosy would load when the first of it is used; all of it shall explain what it lacks."""
    _ = argosy.static
    for name, module in list(sys.modules.items()):
        if name.startswith("argosy.") and not name.startswith(_NOT_PADDLES):
            _explain_absent_names(module)


def _explain_absent_names(module: ModuleType) -> None:
    if "__getattr__" not in vars(module):
        vars(module)["__getattr__"] = missing(module.__name__, vars(module))


def _absent(fullname: str) -> str:
    parent, _, own = fullname.rpartition(".")
    package = sys.modules[parent]
    files = {found.name for found in pkgutil.iter_modules(package.__path__)}
    if package is argosy:
        files -= {name.rpartition(".")[2] for name in _NOT_PADDLES}
    held = {name for name, value in vars(package).items() if isinstance(value, ModuleType)}
    known = sorted(name for name in files | (held & set(getattr(package, "__all__", []))) if name[0] != "_")
    return f"{fullname} is not in Argosy{nearest(own, known)}"
