"""Bounds for numbers and memory in a program from a file: reject what no machine could compute."""

# SPDX-License-Identifier: Apache-2.0
import operator
import os
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
from torch import fx

from argosy.engine.errors import FeedError, ProgramError
from argosy.engine.ir.size_conditions import FastCheck, compile_conditions
from argosy.engine.ir.symbols import Sizes, Symbols, hint
from argosy.engine.ir.verify import describe

_BITS = 63
_MOST_EXPONENT = 64


def machine_bytes() -> int:
    """The physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_bytes(value: Any) -> None:
    """Raise ProgramError if a tensor, or one of several, is larger than the machine's memory for the sizes known."""
    for part in value if isinstance(value, tuple | list) else (value,):
        if isinstance(part, torch.Tensor):
            size = part.untyped_storage().nbytes()
            if isinstance(size, int) and size > machine_bytes():
                kind = f"{str(part.dtype).removeprefix('torch.')}{list(part.shape)}"
                raise ProgramError(
                    f"the result, {kind}, needs {size / 1e9:,.0f} GB of memory, and this machine has "
                    f"{machine_bytes() / 1e9:,.0f} GB; use smaller sizes"
                )


def check_fed_bytes(nodes: Iterable[fx.Node], symbols: Symbols, sizes: Sizes) -> None:
    """Raise FeedError if, for the sizes that are fed, a node's result is larger than the machine's memory."""
    numbers = {symbols.env.replace(s): sympy.Integer(n) for s, n in sizes.items()}
    for node in nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, tuple | list) else (value,):
            size = part.untyped_storage().nbytes() if isinstance(part, torch.Tensor) else 0
            if not isinstance(size, torch.SymInt):
                continue
            nbytes = symbols.env.replace(size.node.expr).xreplace(numbers)
            if nbytes.is_number and int(nbytes) > machine_bytes():
                raise FeedError(
                    f"{describe(node)} ({node.target}) needs {int(nbytes) / 1e9:,.0f} GB of memory for the sizes that "
                    f"are fed, and this machine has {machine_bytes() / 1e9:,.0f} GB; feed less"
                )


def compile_fits(nodes: Iterable[fx.Node], symbols: Symbols) -> FastCheck | None:
    """A fast test of sizes: True if no result is larger than the memory; else `check_fed_bytes` reports it."""
    sizes: set[sympy.Expr] = set()
    for node in nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, tuple | list) else (value,):
            size = part.untyped_storage().nbytes() if isinstance(part, torch.Tensor) else 0
            if isinstance(size, torch.SymInt):
                sizes.add(symbols.env.replace(size.node.expr))
    conditions = [sympy.Le(size, machine_bytes()) for size in sizes]
    return compile_conditions([c for c in conditions if c.free_symbols])


def checked_number(function: Callable[..., Any], *numbers: Any) -> Any:
    """function(*numbers) on sizes; ProgramError if it has more than 63 bits, before it takes time or memory."""
    if function is operator.pow and isinstance(numbers[0], int | torch.SymInt):
        exponent = numbers[1] if isinstance(numbers[1], int | float) else hint(numbers[1])
        if not 0 <= exponent <= _MOST_EXPONENT:
            raise ProgramError(
                f"{numbers[0]} ** {numbers[1]}: the exponent of a size must be 0 to {_MOST_EXPONENT}"
            )
    result = function(*numbers)
    number = hint(result) if isinstance(result, torch.SymInt) else result
    if isinstance(number, int) and number.bit_length() > _BITS:
        raise ProgramError(
            f"{function.__name__}{numbers} is a number of more than {_BITS} bits; sizes have fewer"
        )
    return result
