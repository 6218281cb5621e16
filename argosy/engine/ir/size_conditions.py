"""Compile conditions on sizes to one Python function, which is a thousand times as fast as sympy's substitution."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable, Mapping, Sequence

import sympy
from torch.utils._sympy.printers import PythonPrinter

FastCheck = Callable[[Mapping[sympy.Symbol, int]], bool]


def compile_conditions(conditions: Sequence[sympy.Basic]) -> FastCheck | None:
    """A function of the sizes that is True if all conditions hold; False also if one could not be evaluated.

    A condition of which a symbol has no size is skipped. None if a condition has no Python expression.
    """
    tests = []
    for condition in conditions:
        symbols = sorted(condition.free_symbols, key=str)
        names = {symbol: sympy.Symbol(f"v{i}", integer=True) for i, symbol in enumerate(symbols)}
        try:
            text = PythonPrinter().doprint(condition.xreplace(names))
            arguments = ", ".join(map(str, names.values()))
            test = eval(compile(f"lambda {arguments}: {text}", "<sizes>", "eval"), {"math": math})
        except (SyntaxError, NotImplementedError, ValueError):
            return None
        tests.append((symbols, test))

    def all_hold(sizes: Mapping[sympy.Symbol, int]) -> bool:
        try:
            return all(
                test(*map(sizes.__getitem__, symbols))
                for symbols, test in tests
                if all(s in sizes for s in symbols)
            )
        except (ArithmeticError, NameError, TypeError):  # a remainder of a division by 0; a function of torch
            return False

    return all_hold
