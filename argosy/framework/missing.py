"""What a module says when it is asked for a name that it does not have."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from argosy.engine.errors import UnknownNameError
from argosy.engine.ir.nearest import nearest


def missing(module: str, space: Mapping[str, Any]) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module: an error with the full name and what is there instead."""

    def __getattr__(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python's own questions
        known = [n for n in space if not n.startswith("_")]
        raise UnknownNameError(f"{module}.{name} is not in Argosy{nearest(name, sorted(known))}")

    return __getattr__
