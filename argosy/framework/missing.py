"""The error for a name that a module does not have."""

# SPDX-License-Identifier: Apache-2.0
import dis
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from argosy.engine.errors import UnknownNameError, nearest


def missing(module: str, space: Mapping[str, Any]) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module: raises an error with the full name and the nearest known name."""

    def __getattr__(name: str) -> NoReturn:
        known = [n for n in space.get("__all__", space) if not n.startswith("_")]
        _raise(module, f"{user_name(module)}.{name} is not in Argosy{nearest(name, sorted(known))}", name)

    return __getattr__


def unsupported(module: str, remedy: str) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module of which Argosy has nothing: raises an error with the full name and the remedy."""

    def __getattr__(name: str) -> NoReturn:
        _raise(module, f"{user_name(module)}.{name} is not supported; {remedy}", name)

    return __getattr__


def _raise(module: str, message: str, name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)  # Python looks up optional dunder names
    if _is_import(sys._getframe(2)):
        raise ImportError(message, name=module)  # for any other error Python would show its own message
    raise UnknownNameError(message)


def user_name(module: str) -> str:
    """The module's name as the user writes it: `paddle.nn` while the import hook is installed."""
    hooked = sys.modules.get("paddle") is sys.modules["argosy"]
    return "paddle" + module.removeprefix("argosy") if hooked else module


def _is_import(caller: FrameType) -> bool:
    """True if the caller is at a `from module import name`, maybe through the package's own `__getattr__`."""
    while caller.f_code.co_name == "__getattr__" and caller.f_back is not None:
        caller = caller.f_back
    return dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
