"""Writes a snapshot of a table in one call."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection
from pathlib import Path

from argosy.engine.ps.table.table import SparseTable


def write_snapshot(table: SparseTable, folder: Path, listed: Collection[str] | None = None) -> None:
    """Capture the table and write it; `listed`: the files that the manifest lists."""
    table.write_snapshot(folder, table.capture_snapshot(folder), listed)
