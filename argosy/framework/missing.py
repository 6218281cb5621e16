"""The error for a name that a module does not have, and stand-ins for Paddle's names that are not supported."""

# SPDX-License-Identifier: Apache-2.0
import dis
import importlib
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from argosy.engine.errors import UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    from argosy.framework.unsupported_names import Unsupported

_ELSEWHERE = ("", "static", "static.nn", "nn.functional", "nn", "fluid", "fluid.layers", "optimizer", "io")
"""The modules in which a name is looked up that another module does not have."""


class Raises:
    """A stand-in for a function or class of Paddle that Argosy does not support: a call raises an UnsupportedError.

    It can be imported, so that a script that only imports the name runs.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        self.__doc__ = f"Raises an UnsupportedError: {reason}"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{user_name(self.name)} is not supported: {self.reason}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        """A class statement with this as a base raises too."""
        self()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # `inspect`, `copy` and others look up optional dunder names
        return self()

    def __repr__(self) -> str:
        return f"<{user_name(self.name)}: not supported>"


def raises(name: str, reason: str) -> Raises:
    """A stand-in for `argosy.….name`; the documentation lists it with the reason."""
    return Raises(name, reason)


def missing(module: str, space: Mapping[str, Any]) -> Callable[[str], Any]:
    """A `__getattr__` for a module: a stand-in for a name of Paddle that is not supported, else an error.

    The error has the full name, and where the name is or a similar one, if there is one.
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Python looks up optional dunder names
        full = f"{module}.{name}"
        entry = _entry(full)
        if entry is not None and not entry.is_module:
            return raises(full, entry.reason)
        message = unknown(full, [n for n in space.get("__all__", space) if not n.startswith("_")])
        if _is_import(sys._getframe(1)):
            raise ImportError(message, name=module)  # for any other error Python would show its own message
        raise UnknownNameError(message)

    return __getattr__


def unsupported_module(module: str, remedy: str) -> Callable[[str], Raises]:
    """A `__getattr__` for a module of which Argosy has nothing: every name is a stand-in that raises."""

    def __getattr__(name: str) -> Raises:
        if name.startswith("__"):
            raise AttributeError(name)  # Python looks up optional dunder names
        return raises(f"{module}.{name}", remedy)

    return __getattr__


def unknown(full: str, known: list[str]) -> str:
    """The message about `argosy.….name`, which is not one of the `known` names of its module."""
    entry = _entry(full)
    if entry is not None:
        return f"{user_name(full)} is not supported: {entry.reason}"
    module, _, name = full.rpartition(".")
    alike = _near(name, known)
    hint = f" (did you mean {' or '.join(map(repr, alike))}?)" if alike else ""
    other = None if alike else _elsewhere(module, name)
    return f"{user_name(full)} is not in Argosy" + (f"; there is {user_name(other)}" if other else hint)


def _entry(full: str) -> "Unsupported | None":
    # Only errors need it. (`from argosy.framework import …` would call the `__getattr__` that the import hook adds.)
    from argosy.framework.unsupported_names import entry

    return entry(full.removeprefix("argosy."))


def _near(name: str, known: list[str]) -> list[str]:
    """Known names with a letter more, less or other than the name, or with two of them exchanged; in long names twice.

    `fcc` is near `fc`, but `cond` is not near `conv3d`.
    """
    most = 1 if len(name) <= 5 else 2
    edits = {
        other: _edits(name.lower(), other.lower()) for other in known if abs(len(other) - len(name)) <= most
    }
    least = min(edits.values(), default=most + 1)
    return sorted(other for other, count in edits.items() if count == least)[:2] if least <= most else []


def _edits(a: str, b: str) -> int:
    """How many letters to insert, delete, replace, or exchange with the next one, to make b of a."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, other in enumerate(b, 1):
            count = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                count = min(count, older[j - 2] + 1)
            row.append(count)
    return row[-1]


def _elsewhere(module: str, name: str) -> str | None:
    for place in _ELSEWHERE:
        full = f"argosy.{place}".rstrip(".")
        if full != module and name in importlib.import_module(full).__all__:
            return f"{full}.{name}"
    return None


def user_name(name: str) -> str:
    """`argosy.nn.…` as the user writes it: `paddle.nn.…` while the import hook is installed."""
    hooked = sys.modules.get("paddle") is sys.modules["argosy"]
    return "paddle" + name.removeprefix("argosy") if hooked else name


def _is_import(caller: FrameType) -> bool:
    """True if the caller is at a `from module import name`, maybe through the package's own `__getattr__`."""
    while caller.f_code.co_name == "__getattr__" and caller.f_back is not None:
        caller = caller.f_back
    return dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
