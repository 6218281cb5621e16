"""Rows beyond memory_rows: on disk and back, bit for bit as if they had never left."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
from pathlib import Path

import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ps.table.spill import Rows, Spill
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from tests.ranks import ForkServer


def rows(*ids: int, version: int = 1) -> Rows:
    tensor = torch.tensor(ids, dtype=torch.int64)
    return tensor, torch.randn(len(ids), 3), torch.full((len(ids),), version)


def spec_of(memory_rows: int, kind: str = "adam") -> TableSpec:
    return TableSpec("emb", 4, RowInit("uniform", -1.0, 1.0, 3), RowOptimizer(kind), memory_rows=memory_rows)


# --- the store ----------------------------------------------------------------------------------------


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    spill, put = Spill(tmp_path / "s", 3, 10), rows(5, -1, 2**63 - 1)
    spill.put(put)
    assert (spill.count, sorted(spill.ids().tolist())) == (3, [-1, 5, 2**63 - 1])
    is_here, (ids, records, versions) = spill.get(torch.tensor([-1, 6, 5]))
    spill.drop(ids)
    assert (is_here.tolist(), ids.tolist(), versions.tolist()) == ([True, False, True], [-1, 5], [1, 1])
    assert torch.equal(records, put[1][[1, 0]])
    assert spill.count == 1
    assert not spill.get(torch.tensor([5]))[0].any()
    spill.close()
    assert not list(tmp_path.glob("s/*"))


@pytest.mark.parametrize("log_rows", [10_000, 1])
def test_changed_rows_are_found_in_the_log_or_by_a_scan(tmp_path: Path, log_rows: int) -> None:
    spill = Spill(tmp_path / "s", 3, log_rows)
    for version in range(1, 41):
        spill.put(rows(*range(100 * version, 100 * version + 100), version=version))
    spill.drop(torch.arange(4000, 4050))
    changed = list(spill.changed(38))
    spill.drop(torch.arange(3900, 3950))  # the earlier iterator still yields them
    ids = torch.cat([ids for ids, _, _ in changed])
    assert sorted(ids.tolist()) == [*range(3900, 4000), *range(4050, 4100)]
    later = torch.cat([ids for ids, _, _ in spill.changed(0)])
    assert len(later) == spill.count == 3900
    spill.close()


def test_a_search_sees_the_rows_of_the_moment_when_it_began(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "s", 3, 1)
    spill.put(rows(*range(2000)))
    parts = spill.changed(0)
    spill.drop(torch.arange(1000))
    assert sum(len(ids) for ids, _, _ in parts) == 2000
    spill.close()


def test_what_a_killed_process_left_is_cleared(tmp_path: Path, ranks: ForkServer) -> None:
    script = (
        "import os, sys, torch; from pathlib import Path; from argosy.engine.ps.table.spill import Spill\n"
        "s = Spill(Path(sys.argv[1]), 1, 10); i = torch.arange(10); s.put((i, torch.ones(10, 1), i))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert ranks.python("-c", script, str(tmp_path / "s")).returncode == -signal.SIGKILL
    assert os.listdir(tmp_path / "s")
    spill = Spill(tmp_path / "s", 1, 10)
    assert len(spill.ids()) == spill.count == 0
    spill.close()


def test_two_tables_do_not_share_a_directory(tmp_path: Path) -> None:
    table = SparseTable(spec_of(10), tmp_path)
    table.pull(torch.arange(100))
    with pytest.raises(ConfigError, match="give each server its own writable directory"):
        SparseTable(spec_of(10), tmp_path)
    assert len(table) == 100
    table.close()


# --- tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_tiny_memory_changes_nothing_bit_for_bit(tmp_path: Path, kind: str) -> None:
    plain, spilled = SparseTable(spec_of(0, kind)), SparseTable(spec_of(50, kind), tmp_path)
    marks = 0, 0
    for step in range(40):
        ids = torch.randperm(600)[:80]
        grads = torch.randn(80, 4)
        assert torch.equal(plain.pull(ids), spilled.pull(ids))
        for table in (plain, spilled):
            table.push(ids, grads, 0.1)
        if step % 10 == 9:
            (ids, rows, mark), other = plain.changed_since(marks[0]), spilled.changed_since(marks[1])
            assert torch.equal(ids, other[0])
            assert torch.equal(rows, other[1])
            marks = mark, other[2]
    assert torch.equal(plain.ids(), spilled.ids())
    assert len(plain) == len(spilled)
    assert torch.equal(plain.pull(plain.ids(), create=False), spilled.pull(plain.ids(), create=False))
    spilled.close()


def test_memory_holds_about_as_many_rows_as_it_should(tmp_path: Path) -> None:
    table, whole = SparseTable(spec_of(1000), tmp_path), SparseTable(spec_of(0))
    for batch in torch.arange(50_000).split(500):
        table.pull(batch)
        whole.pull(batch)
    assert len(table) == 50_000
    assert len(table._store._rows) <= 1000
    assert table._store._rows.memory_bytes() < whole.memory_bytes() / 20
    table.close()


def test_rows_that_are_used_stay_in_memory(tmp_path: Path) -> None:
    table, hot = SparseTable(spec_of(1000), tmp_path), torch.arange(100)
    for batch in torch.arange(1000, 6000).split(100):
        table.pull(batch)
        table.pull(hot)
    assert (table._store._rows.find(hot) >= 0).all()
    table.close()


def test_a_batch_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    table, ids = SparseTable(spec_of(10, "sum"), tmp_path), torch.arange(1000)
    first = table.pull(ids)
    table.push(ids, torch.ones(1000, 4), 0.0)
    torch.testing.assert_close(table.pull(ids), first + 1)
    assert len(table._store._rows) <= 10
    table.close()


def test_a_read_without_creating_finds_rows_on_disk(tmp_path: Path) -> None:
    table = SparseTable(spec_of(10), tmp_path)
    table.assign(torch.arange(100), torch.full((100, 4), 7.0))
    values = table.pull(torch.tensor([3, 200, 3, 99]), create=False)
    assert (values[[0, 2, 3]] == 7.0).all()
    assert values[1].abs().max() <= 1.0
    assert len(table) == 100
    table.close()


def test_without_rocksdict_only_tables_with_memory_rows_are_rejected(
    tmp_path: Path, ranks: ForkServer
) -> None:
    script = (
        "import sys; sys.modules['rocksdict'] = None\n"
        "from pathlib import Path; from argosy.engine.ps.table.table import SparseTable, TableSpec\n"
        "SparseTable(TableSpec('emb', 2))\n"
        "SparseTable(TableSpec('emb', 2, memory_rows=5), Path(sys.argv[1]))"
    )
    done = ranks.python("-c", script, str(tmp_path))
    assert "which needs rocksdict" in done.stderr
    assert "line 4" in done.stderr
