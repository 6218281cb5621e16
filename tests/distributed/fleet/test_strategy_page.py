"""docs/strategy.md has a row for every switch, with the default and the status of the tables."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.framework.strategy_settings import Configs, Field, Settings, shown
from argosy.static.build_strategy import BuildStrategy
from argosy.static.execution_strategy import ExecutionStrategy

PAGE = Path(__file__).parents[3] / "docs" / "strategy.md"


def rows(kind: type[Settings]) -> list[str]:
    """The rows of the page for a class of settings."""
    return [_row(field) for field in kind.fields.values()]


def _row(field: Field) -> str:
    if field.is_part and issubclass(field.kind, Configs):
        keys = ", ".join(f"`{key.name}` {shown(key.default)}" for key in field.kind.fields.values())
        return f"| `{field.name}` | {keys} |"
    default = f"`{field.kind.title}()`" if field.is_part else f"`{shown(field.default)}`"
    return f"| `{field.name}` | {default} | {field.status} | {field.help} |"


@pytest.mark.parametrize("kind", [DistributedStrategy, BuildStrategy, ExecutionStrategy])
def test_the_page_matches_the_tables(kind: type[Settings]) -> None:
    lines = PAGE.read_text().splitlines()
    missing = [row for row in rows(kind) if row not in lines]
    assert not missing, "put these rows into docs/strategy.md:\n" + "\n".join(missing)
