"""The fast test of memory agrees with the exact one."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import sympy

from argosy import static
from argosy.engine.errors import FeedError
from argosy.engine.ir.limits import check_fed_bytes, compile_fits, machine_bytes


def test_sizes_that_need_more_than_the_memory_do_not_fit() -> None:
    x = static.data("x", [None, 4])
    program = (x @ x.T).program
    (symbol,) = program.symbols.origin
    fits = compile_fits(program.graph.nodes, program.symbols)
    assert fits is not None
    too_many = int(sympy.sqrt(machine_bytes()))  # squared, and four bytes each
    assert [fits({symbol: size}) for size in (0, 100, too_many)] == [True, True, False]
    check_fed_bytes(program.graph.nodes, program.symbols, {symbol: 100})
    with pytest.raises(FeedError, match="GB of memory for the sizes that are fed"):
        check_fed_bytes(program.graph.nodes, program.symbols, {symbol: too_many})
