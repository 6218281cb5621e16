"""Functions that share an implementation and differ in a few arguments or defaults.

    def _max_pool(spatial, x, kernel_size, stride=None, data_format="NCHW", name=None): …

    @variant(_max_pool, 1, parameters="x kernel_size stride name", data_format="NCL")
    def max_pool1d() -> Any:
        "The greatest of each window over one axis."

    exp = unary("exp", torch.exp, "e to the power of x.")

The result is an ordinary function for `help` and `inspect.signature`: it has its name, its arguments, a docstring.
"""

# SPDX-License-Identifier: Apache-2.0
import inspect
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


def variant(
    function: Callable[..., Any], /, *fixed: Any, parameters: str = "", **defaults: Any
) -> Callable[[Callable[[], Any]], Callable[..., Any]]:
    """Give a declaration without body the implementation `function`, whose first parameters are `fixed`.

    `parameters` lists the names of the remaining parameters in the order of the new signature; by default all but
    those that are keyword-only. A parameter that is not listed has the value in `defaults`, or its own default.
    """
    signature = signature_of(function, len(fixed), parameters, defaults)
    hidden = {name: value for name, value in defaults.items() if name not in signature.parameters}

    def implement(declared: Callable[[], Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*fixed, **hidden, **arguments(declared.__qualname__, signature, args, kwargs))

        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(call, attribute, getattr(declared, attribute))
        call.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` reads
        return call

    return implement


def row(
    own_name: str, doc: str, function: Callable[..., Any], /, *fixed: Any, parameters: str = ""
) -> Callable[..., Any]:
    """A variant of `function`, a function of the same module, as a row of a table."""

    return variant(function, *fixed, parameters=parameters)(declaration(own_name, function.__module__, doc))


def declaration(own_name: str, module: str, doc: str | None = None) -> Callable[[], None]:
    """A function without body for `variant`; the name may be qualified by a class."""

    def declared() -> None:
        pass

    declared.__name__, declared.__qualname__ = own_name.rpartition(".")[2], own_name
    declared.__module__, declared.__doc__ = module, doc
    return declared


def signature_of(
    function: Callable[..., Any], num_fixed: int, parameters: str, defaults: dict[str, Any]
) -> inspect.Signature:
    """The signature of a variant whose first `num_fixed` parameters are fixed; other arguments as in `variant`."""
    full = inspect.signature(function)
    rest = {
        name: parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in list(full.parameters.items())[num_fixed:]
    }
    names = parameters.split() or [n for n, p in rest.items() if p.kind is not p.KEYWORD_ONLY]
    return full.replace(parameters=[rest[name] for name in names])


def arguments(
    own_name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, with defaults; a TypeError that names the function if they do not fit."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as e:
        raise TypeError(f"{own_name}() {e}") from None
    bound.apply_defaults()
    return bound.arguments
