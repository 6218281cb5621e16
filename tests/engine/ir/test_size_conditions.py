"""Compiled conditions give what sympy gives."""

# SPDX-License-Identifier: Apache-2.0
import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from argosy.engine.ir.size_conditions import compile_conditions

N, M = sympy.symbols("N M", integer=True, positive=True)


def test_all_conditions_must_hold() -> None:
    check = compile_conditions([sympy.Eq(Mod(N, 5), 0), sympy.Le(M, FloorDiv(N, 2)), sympy.Ne(M, 7)])
    assert check is not None
    assert [check({N: n, M: m}) for n, m in ((10, 5), (11, 5), (10, 6), (20, 7))] == [
        True,
        False,
        False,
        False,
    ]


def test_a_condition_without_its_sizes_is_skipped() -> None:
    check = compile_conditions([sympy.Eq(N, M)])
    assert check is not None
    assert check({N: 3})
    assert not check({N: 3, M: 4})


def test_a_division_by_zero_is_left_to_the_exact_check() -> None:
    check = compile_conditions([sympy.Eq(Mod(N, M), 0)])
    assert check is not None
    assert not check({N: 3, M: 0})
