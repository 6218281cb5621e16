"""Lazy imports, aliases of modules, packages that collect the names of their modules. Does not import torch."""

# SPDX-License-Identifier: Apache-2.0
import gc
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import InspectLoader, Loader
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any


def lazily(package: dict[str, Any], api: str) -> Callable[[str], Any]:
    """A `__getattr__` for the package with these globals: the first attribute access imports all of `api`."""

    def __getattr__(name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(name)  # Python looks up optional dunder names
        with _garbage_collector_paused():
            module = importlib.import_module(api)
        value = getattr(module, name)
        package.update({n: v for n, v in vars(module).items() if not n.startswith("_")})
        return value

    return __getattr__


@contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """No collections inside: importing torch creates a million objects that stay, and searching them takes 0.8 s.

    In the list of process-wide effects it is part of `gc`.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # the two move all objects to the oldest generation: the next collections visit new ones only
        gc.enable()


def load_on_use(
    package: dict[str, Any], sources: Mapping[str, str], otherwise: Callable[[str], Any]
) -> Callable[[str], Any]:
    """A `__getattr__` for the package with these globals: each name imports its module when it is first used.

    `sources` maps a name to the module that defines it, or that it is. Other names are passed to `otherwise`.
    """

    def __getattr__(name: str) -> Any:
        if name not in sources:
            return otherwise(name)
        module = importlib.import_module(sources[name])
        package[name] = value = module if sources[name].endswith(f".{name}") else getattr(module, name)
        return value

    return __getattr__


def submodules(package: str, names: Collection[str], otherwise: Callable[[str], Any]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: these modules of it are imported at their first use."""
    return load_on_use({}, {name: f"{package}.{name}" for name in names}, otherwise)


def collect(package: dict[str, Any], *modules: ModuleType) -> None:
    """Add the functions and classes that these modules define to a package, and set its `__all__`.

    `__all__` contains the functions and classes that the package imports itself, too. Names that begin with an
    underscore are private.
    """
    for module in modules:
        defined = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
        package.update({n: v for n, v in defined.items() if not n.startswith("_")})
    package["__all__"] = sorted(
        n for n, v in package.items() if not n.startswith("_") and not isinstance(v, ModuleType)
    )


class Alias(Loader):
    """A loader that returns an existing module under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has replaced it by the alias's spec

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module, for `python -m alias`."""
        loader = self._spec.loader if self._spec is not None else None
        assert isinstance(loader, InspectLoader), f"{self._module.__name__} is a file of Argosy"
        return loader.get_code(self._module.__name__)
