"""What a server keeps on disk: records that are whole or not there, snapshots that replace each other."""

# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from argosy.engine.errors import CorruptFileError
from argosy.engine.ps.server.journal import Journal
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, PlainSgd, served, step


def read(directory: Path) -> list[tuple[str, int, list[Tensor]]]:
    return [(record.kind, record.meta["n"], tensors) for record, tensors in Journal(directory).records()]


def written(directory: Path, count: int) -> Journal:
    journal = Journal(directory)
    journal.snapshot(0, {"w": torch.zeros(2)}, {"more": 1})
    for n in range(count):
        journal.append("step", {"n": n}, [torch.full((3,), float(n)), torch.tensor([[n]])])
    return journal


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    found = read(tmp_path)
    assert [(kind, n) for kind, n, _ in found] == [("step", 0), ("step", 1), ("step", 2)]
    assert found[2][2][0].tolist() == [2.0, 2.0, 2.0]
    assert found[2][2][1].tolist() == [[2]]


def test_a_record_that_was_cut_off_anywhere_is_dropped_and_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    journal = written(tmp_path, 2)
    (path,) = tmp_path.glob("log.*")
    journal.close()
    whole = path.read_bytes()
    two = len(whole)
    for length in range(two // 2 + 1, two, 7):
        path.write_bytes(whole[:length])
        again = Journal(tmp_path)
        assert len(list(again.records())) == 1
        again.append("step", {"n": 9}, [])
        again.close()
        assert [n for _, n, _ in read(tmp_path)] == [0, 9]


def test_an_altered_record_ends_the_log(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    (path,) = tmp_path.glob("log.*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert len(read(tmp_path)) < 3


def test_a_snapshot_replaces_the_log_and_the_old_state(tmp_path: Path) -> None:
    journal = written(tmp_path, 3)
    journal.snapshot(3, {"w": torch.ones(2)}, {})
    assert read(tmp_path) == []
    assert Journal(tmp_path).state()["w"].tolist() == [1.0, 1.0]
    assert len(os.listdir(tmp_path)) == 3, "state, log and manifest"


def test_a_manifest_that_is_none_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 0).close()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CorruptFileError, match="is no manifest"):
        Journal(tmp_path)


def test_a_server_goes_on_from_what_another_life_has_written(tmp_path: Path) -> None:
    with served(trainers=1, directory=tmp_path) as (_, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        rows = torch.ones(2, 1, 2)
        for _ in range(3):
            step(trainer, torch.ones(3), 0.5, rows)
        trainer.close()
    with served(trainers=1, directory=tmp_path, updater=PlainSgd(w=torch.zeros(3))) as (service, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        assert trainer.connection.next_step == 4
        assert service.steps.done == 3
        assert (step(trainer, torch.ones(3), 0.5, rows) == -2.0).all()
        assert trainer.rows.ask("table", torch.tensor([5])).wait().tolist() == [[-1.0, -1.0]]
        trainer.close()
