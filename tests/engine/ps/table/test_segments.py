"""Snapshots: only what changed is written, a restart is equal bit for bit, a kill at any moment loses nothing named."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from tests.engine.ps.table.snapshots import write_snapshot
from tests.ranks import ForkServer

SPEC = TableSpec("emb", 4, RowInit("uniform", -1.0, 1.0, 3), RowOptimizer("adam"))


def push(table: SparseTable, *ids: int) -> None:
    table.push(torch.tensor(ids, dtype=torch.int64), torch.randn(len(ids), 4), 0.1)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_same(a: SparseTable, b: SparseTable) -> None:
    """Equal rows now, and, since their state is equal too, after one more step."""
    ids = a.ids()
    assert torch.equal(ids, b.ids())
    assert torch.equal(a.pull(ids), b.pull(ids))
    grads = torch.randn(len(ids), 4)
    for table in (a, b):
        table.push(ids, grads, 0.1)
    assert torch.equal(a.pull(ids), b.pull(ids))


def restored(folder: Path, names: list[str]) -> SparseTable:
    table = SparseTable(SPEC)
    table.restore(folder, names)
    return table


def test_a_restored_table_continues_bit_for_bit(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    for part in ([1, 2, 3], [2, 9], [-5, 1]):
        push(table, *part)
        write_snapshot(table, tmp_path)
    assert_same(restored(tmp_path, table.snapshot_files()), table)


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    push(table, *range(1000))
    write_snapshot(table, tmp_path)
    push(table, 7)
    write_snapshot(table, tmp_path)
    write_snapshot(table, tmp_path)  # nothing changed: no file
    assert (
        table.snapshot_files() == files(tmp_path) == ["emb-00000001.safetensors", "emb-00000002.safetensors"]
    )
    sizes = [(tmp_path / name).stat().st_size for name in table.snapshot_files()]
    assert sizes[1] < sizes[0] / 50


def test_after_a_restore_only_later_changes_are_written(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    push(table, *range(1000))
    write_snapshot(table, tmp_path)
    again = restored(tmp_path, table.snapshot_files())
    push(again, 3)
    write_snapshot(again, tmp_path)
    assert (tmp_path / again.snapshot_files()[1]).stat().st_size < 1000
    assert_same(restored(tmp_path, again.snapshot_files()), again)


def test_many_segments_become_one_and_the_old_ones_go_a_snapshot_later(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    for _ in range(3):
        push(table, *range(100))
        write_snapshot(table, tmp_path)
    before = table.snapshot_files()
    push(table, 5)
    write_snapshot(table, tmp_path)
    assert len(table.snapshot_files()) == 1
    assert files(tmp_path) == sorted(
        before + table.snapshot_files()
    )  # the manifest may still name those before
    assert_same(restored(tmp_path, table.snapshot_files()), table)
    push(table, 6)
    write_snapshot(table, tmp_path)
    assert files(tmp_path) == table.snapshot_files()


def test_files_that_the_manifest_names_are_kept_as_long_as_it_does(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    for _ in range(3):
        push(table, *range(100))
        write_snapshot(table, tmp_path)
    manifest = table.snapshot_files()
    for _ in range(3):
        push(table, 5)
        write_snapshot(table, tmp_path, listed=manifest)
    restored(tmp_path, manifest)
    assert_same(restored(tmp_path, table.snapshot_files()), table)


def test_files_that_no_manifest_names_go_and_those_of_others_stay(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    push(table, 1)
    write_snapshot(table, tmp_path)
    manifest = table.snapshot_files()
    push(table, 2)
    write_snapshot(table, tmp_path)  # and then it is killed
    (tmp_path / "emb-00000003.safetensors.tmp").write_bytes(b"half")
    others = ["emb-2-00000001.safetensors", "embx-00000001.safetensors", "manifest.json"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    again = restored(tmp_path, manifest)
    push(again, 3)
    write_snapshot(again, tmp_path)
    assert files(tmp_path) == sorted([*again.snapshot_files(), *others])
    assert_same(restored(tmp_path, again.snapshot_files()), again)


def test_a_snapshot_to_another_folder_is_whole(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    for row, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        push(table, 10, 11, row)
        write_snapshot(table, folder)
        assert_same(restored(folder, table.snapshot_files()), table)


def test_a_cut_is_a_moment_whatever_comes_before_it_is_written(tmp_path: Path) -> None:
    spec = TableSpec("emb", 4, SPEC.initializer, SPEC.optimizer, memory_rows=20)
    table, twin = SparseTable(spec, tmp_path / "rows"), SparseTable(SPEC)
    ids, grads = torch.arange(500), torch.randn(500, 4)
    for each in (table, twin):
        each.push(ids, grads, 0.1)
    cut = table.capture_snapshot(tmp_path)
    table.push(ids + 100, grads, 0.1)
    table.write_snapshot(tmp_path, cut)
    assert_same(restored(tmp_path, table.snapshot_files()), twin)
    write_snapshot(table, tmp_path)
    assert_same(restored(tmp_path, table.snapshot_files()), table)
    table.close()


def test_a_table_with_rows_on_disk_is_saved_and_restored(tmp_path: Path) -> None:
    spec = TableSpec("emb", 4, SPEC.initializer, SPEC.optimizer, memory_rows=20)
    table, twin = SparseTable(spec, tmp_path / "a"), SparseTable(SPEC)
    for _ in range(5):
        ids, grads = torch.randperm(300)[:60], torch.randn(60, 4)
        for each in (table, twin):
            each.push(ids, grads, 0.1)
        write_snapshot(table, tmp_path)
    again = SparseTable(spec, tmp_path / "b")
    again.restore(tmp_path, table.snapshot_files())
    assert len(again._store._rows) <= 20
    assert_same(again, twin)
    for each in (table, again):
        each.close()


def test_altered_truncated_missing_and_foreign_segments_are_rejected(tmp_path: Path) -> None:
    table = SparseTable(SPEC)
    push(table, *range(100))
    write_snapshot(table, tmp_path)
    (name,) = table.snapshot_files()
    data = (tmp_path / name).read_bytes()
    for bad in (data[:-1], data[:100], b"", data[:-50] + b"x" + data[-49:]):
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(CorruptFileError, match="corrupt segment"):
            restored(tmp_path, [name])
    with pytest.raises(ConfigError, match="segment .* is missing"):
        restored(tmp_path, ["emb-00000009.safetensors"])
    (tmp_path / name).write_bytes(data)
    other = SparseTable(TableSpec("emb", 4))
    with pytest.raises(ConfigError, match="has 13 floats in a row and the table has 4"):
        other.restore(tmp_path, [name])


def step_of_the_child(table: SparseTable, step: int) -> None:
    drawn = torch.Generator().manual_seed(step)
    ids = torch.randperm(20_000, generator=drawn)[:4000]
    table.push(ids, torch.randn(4000, 4, generator=drawn), 0.1)


def take_snapshots() -> None:
    """On a rank: steps, each with a snapshot that a manifest names, until it is killed."""
    folder = Path(os.environ["FOLDER"])
    table, step = SparseTable(SPEC), 0
    if (folder / "manifest.json").exists():
        manifest = json.loads((folder / "manifest.json").read_text())
        step = manifest["step"]
        table.restore(folder, manifest["segments"])
    while True:
        step += 1
        step_of_the_child(table, step)
        table.write_snapshot(folder, table.capture_snapshot(folder))
        (folder / "manifest.tmp").write_text(json.dumps({"step": step, "segments": table.snapshot_files()}))
        os.replace(folder / "manifest.tmp", folder / "manifest.json")


def test_a_kill_during_snapshots_leaves_what_the_manifest_names(tmp_path: Path, ranks: ForkServer) -> None:
    twin, done = SparseTable(SPEC), 0
    for _ in range(2):  # the second resumes where the first was killed
        with ranks.start(1, take_snapshots, FOLDER=str(tmp_path)) as child:
            while _step(tmp_path) <= done:
                time.sleep(0.01)
            time.sleep(random.uniform(0.3, 0.8))
            child.kill(0, signal.SIGKILL)
            child.end_of(0)
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        assert manifest["step"] > done
        for step in range(done + 1, manifest["step"] + 1):
            step_of_the_child(twin, step)
        done = manifest["step"]
        table = restored(tmp_path, manifest["segments"])
        ids = twin.ids()
        assert torch.equal(table.ids(), ids)
        assert torch.equal(table.pull(ids), twin.pull(ids))


def _step(folder: Path) -> int:
    path = folder / "manifest.json"
    return int(json.loads(path.read_text())["step"]) if path.exists() else 0
