"""Paddle's text format: written as Paddle does, read back bit for bit, bad lines named."""

# SPDX-License-Identifier: Apache-2.0
import logging
from pathlib import Path

import pytest
import torch

from argosy.engine.errors import ArgosyError
from argosy.engine.ps.table.persistence import files_of_paddle, remove_other_saves
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec

META = "param=emb\nshard_id=0\nrow_names=Param\nrow_dims=2\ncount=1\n"


def table_of(kind: str = "sgd", dim: int = 2) -> SparseTable:
    return SparseTable(TableSpec("emb", dim, RowInit("normal", 0.0, 1.0, 2), RowOptimizer(kind)))


def test_the_files_are_paddles(tmp_path: Path) -> None:
    table = table_of("adam")
    table.assign(torch.tensor([17, -3]), torch.tensor([[0.25, -1.5], [1e-8, 3.0]]))
    path = table.save_text(tmp_path, shard=1)
    assert path == tmp_path / "emb.block1.txt"
    assert path.read_text() == "17\t0.25,-1.5,0,0,0,0,0,\n-3\t9.99999994e-09,3,0,0,0,0,0,\n"
    meta = "param=emb\nshard_id=1\nrow_names=Param,Moment1,Moment2,Count\nrow_dims=2,2,2,1\ncount=2\n"
    assert (tmp_path / "emb.block1.meta").read_text() == meta
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("memory_rows", [0, 30])
def test_values_and_state_are_read_back_bit_for_bit(tmp_path: Path, memory_rows: int) -> None:
    spec = TableSpec("emb", 3, RowInit("normal", 0.0, 1.0, 2), RowOptimizer("adam"), memory_rows=memory_rows)
    table, again = SparseTable(spec, tmp_path / "a"), SparseTable(spec, tmp_path / "b")
    ids = torch.randperm(1000)[:200] - 500
    for _ in range(2):
        table.push(ids, torch.randn(200, 3), 0.1)
    table.save_text(tmp_path)
    again.load_text(files_of_paddle(tmp_path, table.spec.name))
    grads = torch.randn(200, 3)
    for each in (table, again):
        each.push(ids, grads, 0.1)
    assert torch.equal(table.ids(), again.ids())
    assert torch.equal(table.pull(ids), again.pull(ids))
    for each in (table, again):
        each.close()


def test_a_long_saving_says_how_far_it_is(tmp_path: Path) -> None:
    table = table_of()
    table.pull(torch.arange(150_000))
    reported: list[int] = []
    path = table.save_text(tmp_path, progress=reported.append)
    assert len(reported) >= 3
    assert reported == sorted(reported)
    assert reported[-1] == 150_000 == path.read_bytes().count(b"\n")


def test_a_server_reads_its_rows_out_of_the_files_of_all(tmp_path: Path) -> None:
    for shard in range(3):
        saved = table_of()
        saved.pull(torch.arange(shard, 30, 3))
        saved.save_text(tmp_path, shard)
    table = table_of()
    table.load_text(files_of_paddle(tmp_path, "emb"), lambda ids: ids % 2 == 1)
    assert table.ids().tolist() == list(range(1, 30, 2))


def test_only_files_of_other_saves_are_removed(tmp_path: Path) -> None:
    table = table_of()
    for shard, save in ((0, ""), (0, "aa"), (0, "bb"), (1, "aa"), (2, "aa")):
        table.save_text(tmp_path, shard, save)
    remove_other_saves(tmp_path, "emb", lambda shard: shard in (0, 2), {"bb"})
    left = sorted(path.name for path in tmp_path.glob("*.txt"))
    assert left == ["emb.block0-bb.txt", "emb.block0.txt", "emb.block1-aa.txt"]


def test_what_paddle_writes_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "emb.block0.txt").write_text("18446744073709551615\t4\t0\t1\t0.5,0.25,0.001,\n")
    (tmp_path / "emb.block0.meta").write_text(
        META.replace("row_names=Param", "row_names=Param,LearningRate").replace("row_dims=2", "row_dims=2,1")
    )
    table = table_of("momentum")
    with caplog.at_level(logging.WARNING, logger="argosy"):
        table.load_text(files_of_paddle(tmp_path, "emb"))
    assert table.pull(torch.tensor([-1])).tolist() == [[0.5, 0.25]]
    assert "has no LearningRate; ignoring it" in caplog.text
    assert "has no Velocity: the optimizer starts from zero state" in caplog.text


@pytest.mark.parametrize(
    ("lines", "meta", "says"),
    [
        ("1\t0.5,0.25,\n2\t0.5,x,\n", META, r"emb.block0.txt:2: could not convert"),
        ("1\t0.5,\n", META, r"emb.block0.txt:1: 1 floats, not 2"),
        ("1 0.5,0.25,\n", META, r"emb.block0.txt:1: 1 columns"),
        ("one\t0.5,0.25,\n", META, r"emb.block0.txt:1: invalid literal"),
        ("99999999999999999999\t0.5,0.25,\n", META, r":1: the id 99999999999999999999 has more than 64 bits"),
        ("\n", META, r"emb.block0.txt:1: 1 columns"),
        ("", META, "has 0 rows and its .meta says 1"),
        (
            "1\t0.5,0.25,\n",
            META.replace("row_dims=2", "row_dims=3"),
            "Param has 3 floats and the table has 2",
        ),
        ("1\t0.5,0.25,\n", META.replace("row_names", "names"), "has no line row_names="),
        ("1\t0.5,0.25,\n", META.replace("=Param", "=Value"), "Param among them"),
        ("1\t0.5,0.25,\n", None, "there is no .*emb.block0.meta"),
        (None, META, "there is no emb.block"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, lines: str | None, meta: str | None, says: str) -> None:
    if lines is not None:
        (tmp_path / "emb.block0.txt").write_text(lines)
    if meta is not None:
        (tmp_path / "emb.block0.meta").write_text(meta)
    with pytest.raises(ArgosyError, match=says):
        table_of().load_text(files_of_paddle(tmp_path, "emb"))
