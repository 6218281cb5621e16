"""Functions of one form, made from a line of a table.

    exp = unary("exp", torch.exp, "e to the power of x.")

What comes out is an ordinary function with a name, a signature and a docstring.
"""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections.abc import Callable
from typing import Any, Protocol

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply


class Unary(Protocol):
    """A function of one Variable."""

    def __call__(self, x: Variable, name: str | None = None) -> Any: ...


class Binary(Protocol):
    """A function of two Variables, or of a Variable and a number; sizes of 1 are broadcast."""

    def __call__(self, x: Any, y: Any, name: str | None = None) -> Any: ...


def unary(own_name: str, function: Callable[..., Any], doc: str, kind: str = "") -> Unary:
    """`own_name(x, name=None)`; its results are called after `kind` (default: after itself)."""

    def layer(x: Variable, name: str | None = None) -> Any:
        return apply(kind or own_name, function, x, name=name)

    _sign(layer, own_name, doc)
    return layer


def binary(own_name: str, function: Callable[..., Any], doc: str, kind: str = "") -> Binary:
    """`own_name(x, y, name=None)`; its results are called after `kind` (default: after itself)."""

    def layer(x: Any, y: Any, name: str | None = None) -> Any:
        return apply(kind or own_name, function, x, y, name=name)

    _sign(layer, own_name, doc)
    return layer


def _sign(layer: Any, own_name: str, doc: str) -> None:
    layer.__name__ = layer.__qualname__ = own_name
    layer.__doc__ = doc
    layer.__module__ = sys._getframe(2).f_globals["__name__"]  # of the table, as namedtuple does
