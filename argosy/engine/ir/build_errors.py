"""Translate torch's errors during recording into messages for the user."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from argosy.engine.errors import (
    ArgosyError,
    BuildError,
    BuildIndexError,
    BuildTypeError,
    UnknownSizeError,
)
from argosy.engine.ir.source import user_line
from argosy.engine.ir.symbols import Symbols

_NO_VALUE = (
    "it needs the value of a variable, which is unknown while the program is built; keep the decision "
    "inside the program (torch.where, masks) or fetch the value and feed it back"
)

_DENSE = "sparse tensors cannot be recorded; programs have dense tensors: use to_dense() before"
_KNOWN = {
    ".numpy() is not supported for tensor subclasses": f".numpy() {_NO_VALUE}",
    "SparseTensorImpl": _DENSE,
    "SparseCsrTensorImpl": _DENSE,
    "unsupported memory format option": _DENSE,
}
"""A substring of a message of torch -> the message for the user."""


@contextmanager
def building(what: Callable[[], str], symbols: Symbols) -> Iterator[None]:
    """Convert errors inside to BuildError: what was being built, at which source line, and why it failed."""
    try:
        yield
    except UnknownSizeError as e:
        raise BuildError(
            f"{what()} at {user_line()} cannot be built: {symbols.without_symbols(str(e))}"
        ) from e
    except ArgosyError:
        raise
    except Exception as e:
        kind = next((mine for theirs, mine in _CLASSES if isinstance(e, theirs)), BuildError)
        raise kind(f"{what()} at {user_line()} cannot be built: {why(e, symbols)}") from e


_CLASSES = ((TypeError, BuildTypeError), (IndexError, BuildIndexError))
"""The class of an error of torch -> that of the error for the user; BuildError for all others."""


def needs_data(error: Exception) -> bool:
    """True if torch needed a value, or a size that depends on values."""
    return isinstance(
        error,
        GuardOnDataDependentSymNode
        | DataDependentOutputException
        | DynamicOutputShapeException
        | UnsupportedOperatorException,
    )


def why(error: Exception, symbols: Symbols) -> str:
    """The reason for an error of torch: a known explanation, or its first line without internal symbols."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return _NO_VALUE
    if isinstance(error, DataDependentOutputException):
        return f"{error.func} {_NO_VALUE}"
    if isinstance(error, DynamicOutputShapeException):
        return (
            f"the shape of what {error.func} returns depends on the data, and a static program needs shapes when it "
            "is built; use a mask, or compute it outside of the program and feed it"
        )
    if isinstance(error, UnsupportedOperatorException):
        return (
            f"torch cannot infer the shape of what {error.func} returns without data, so it cannot be recorded; "
            "compute it outside of the program and feed it"
        )
    text = str(error).strip().split("\n", 1)[0]
    known = next((reason for part, reason in _KNOWN.items() if part in text), None)
    return known or (symbols.without_symbols(text) if text else f"torch raised {type(error).__name__}")
