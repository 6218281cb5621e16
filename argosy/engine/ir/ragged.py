"""Ragged values: rows of sequences of different lengths. Which values are ragged follows from their first size.

    x = data("x", [None, 8], lod_level=1)      x          float32[T, 8]    the rows of all sequences
                                               x@LENGTHS  int64[B]         the length of each sequence

T is a symbol of x alone, so that a value whose first size is T has one row for each row of x: it is ragged with the
lengths of x, whatever function computed it. `Symbols.ragged` maps numbers of rows to the variables of the lengths.
Levels nest: with lod_level=2, x@LENGTHS is ragged itself, with the lengths x@LENGTHS@LENGTHS.

The executor computes the companions of a feed from its LoDTensor: x@LENGTHS, and x@POSITIONS, which is 0, 1, … up to
the longest sequence, so that the greatest length is a symbol, too.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import sympy
import torch

from argosy.engine.errors import ProgramError

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program
    from argosy.engine.ir.symbols import Size, Symbols
    from argosy.engine.ir.variable import Variable

LENGTHS, POSITIONS = "@LENGTHS", "@POSITIONS"
ROWS_HINT = 43
"""The hint of a number of rows; another prime than those of symbols.py, so that it is not mistaken for a batch."""


def companion_of(name: str) -> str | None:
    """The feed that this name is a companion of; None if it is an ordinary name."""
    base = name
    while base.endswith((LENGTHS, POSITIONS)):
        base = base.removesuffix(LENGTHS).removesuffix(POSITIONS)
    return base if base and base != name else None


def expression(size: Size) -> sympy.Expr | None:
    """The symbolic expression of a size; None if it is a number."""
    return None if isinstance(size, int) else size.node.expr


def set_lengths(program: Program, rows: Size, lengths: Variable) -> None:
    """Declare that values with this number of rows are ragged with these lengths."""
    key = expression(rows)
    assert key is not None, f"{rows} rows are a number, and ragged values are known by a symbol"
    program.symbols.ragged.setdefault(key, lengths.name)


def lengths_of(variable: Variable) -> Variable | None:
    """The lengths of the sequences of a variable (of the innermost level); None if it is not ragged."""
    program = variable.program
    if variable.is_data:  # its level is declared, even if its size must equal that of a ragged variable
        return program.vars.get(variable.name + LENGTHS)
    if not program.symbols.ragged or variable.value.ndim == 0:
        return None
    key = expression(variable.value.shape[0])
    names = [] if key is None else _names(program.symbols, key)
    known = [program.vars[name] for name in names if name in program.vars]
    if len(known) > 1 and not all(lengths.is_data for lengths in known):
        raise ProgramError(
            f"{variable.name!r} has the rows of several ragged variables, with the lengths "
            f"{', '.join(v.name for v in known)}; choose one of them with lod_reset"
        )
    return known[0] if known else None


def all_lengths_of(variable: Variable) -> list[Variable]:
    """The lengths of each level, the outermost first; empty if the variable is not ragged."""
    levels: list[Variable] = []
    lengths = lengths_of(variable)
    while lengths is not None:
        levels.insert(0, lengths)
        lengths = lengths_of(lengths)
    return levels


def rows_of_lengths(lengths: Variable) -> Size | None:
    """The number of rows of ragged values with these lengths; None if they belong to no ragged value."""
    symbols = lengths.program.symbols
    for key, name in symbols.ragged.items():
        known = lengths.program.vars.get(name)
        if known is not None and known.value is lengths.value:
            return symbols.env.size_of(symbols.env.replace(key))
    return None


def positions_of(lengths: Variable) -> Variable | None:
    """The variable 0, 1, … up to the greatest of the lengths of a feed; None if the lengths are computed."""
    if not lengths.is_data or not lengths.name.endswith(LENGTHS):
        return None
    return lengths.program.data(lengths.name.removesuffix(LENGTHS) + POSITIONS, [None], torch.int64)


def aligned_feeds(symbols: Symbols) -> list[list[str]]:
    """The lengths of feeds whose rows the program combines, so that the lengths must be equal: groups of names."""
    version = len(symbols.ragged) + len(symbols.assumptions)
    if symbols.aligned[0] != version:
        groups: dict[sympy.Expr, list[str]] = {}
        for key, name in symbols.ragged.items():
            if companion_of(name) is not None:
                groups.setdefault(symbols.env.replace(key), []).append(name)
        symbols.aligned = (version, [names for names in groups.values() if len(names) > 1])
    return symbols.aligned[1]


def _names(symbols: Symbols, rows: sympy.Expr) -> list[str]:
    replaced = symbols.env.replace(rows)
    return [name for key, name in symbols.ragged.items() if symbols.env.replace(key) == replaced]
