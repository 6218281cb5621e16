"""Table specifications: JSON round trips; invalid ones are rejected."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec


def test_a_spec_goes_through_json() -> None:
    spec = TableSpec("emb", 10, RowInit("uniform", -1.0, 1.0, 5), RowOptimizer("adam", {"beta1": 0.8}), 1000)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=TableSpec) == spec


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TableSpec("", 3), "has no name"),
        (lambda: TableSpec("emb", 0), "rows of 0 floats"),
        (lambda: TableSpec("emb", 3, memory_rows=-1), "memory_rows=-1"),
        (lambda: TableSpec("emb", 3, dtype="float16"), "hold float32 only"),
        (lambda: RowInit("xavier"), "no initializer 'xavier'.*use constant, uniform"),
        (lambda: RowInit("uniform", 1.0, 0.0), "no range"),
        (lambda: RowInit("normal", 0.0, -1.0), "deviation -1.0"),
        (lambda: RowInit("constant", float("nan")), "not finite"),
        (lambda: RowOptimizer("lamb"), "norm of the whole parameter"),
        (lambda: RowOptimizer("lars_momentum"), "norm of the whole parameter"),
        (lambda: RowOptimizer("adma"), "no optimizer 'adma'.*use sgd"),
        (lambda: RowOptimizer("adam", {"rho": 1.0}), "no setting 'rho' .known: beta1"),
        (lambda: RowOptimizer("sgd", {"l2": float("inf")}), "l2=inf"),
    ],
)
def test_invalid_specs_are_rejected(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_the_name_of_a_table_is_safe_in_a_file_name() -> None:
    assert TableSpec("a/b c.w_0", 1).file_name == "a%2Fb%20c.w_0"
