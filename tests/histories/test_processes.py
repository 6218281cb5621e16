"""What a killed trainer has recorded is read; the updater shows the order as the checker expects it."""

# SPDX-License-Identifier: Apache-2.0
import math
from pathlib import Path

import torch

from tests.histories.checker import after
from tests.histories.processes import Job, Progress, Recorder, recorded
from tests.histories.revealing import RevealingUpdater, gradient_of, plan_of

SIZE = 4


def job_in(folder: Path, mode: str = "sync") -> Job:
    return Job(plan_of(["127.0.0.1:1", "127.0.0.1:2"], 2, mode, SIZE), SIZE, folder)


def test_records_of_all_incarnations_are_joined_and_a_truncated_one_is_left_out(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path / "trainer0.0"), Recorder(tmp_path / "trainer0.1")
    first("begin", 0, 2, 1, 10.0)
    first.pull(1, 10.0, torch.tensor([0.0, 0.0, 1.0, 0.0]), 3, 1)
    first("begin", 0, 3, 2, 11.0)
    with open(tmp_path / "trainer0.0", "r+b") as file:
        file.truncate((tmp_path / "trainer0.0").stat().st_size - 3)
    second("begin", 0, 2, 1, 12.0)
    second("ack", 2, 13.0)
    second.rows(0, 13.0, torch.tensor([0.0, 0.5, 1.0, 0.0]))
    second("begin", 0, 0, 2, 14.0)
    record = recorded(job_in(tmp_path))
    assert [(push.index, push.began, push.ended) for push in record.pushes] == [
        (2, 10.0, 13.0),
        (0, 14.0, math.inf),
    ]
    (pull,) = record.vectors[1].pulls
    assert (pull.began, pull.values.tolist(), pull.order, pull.step) == (10.0, [0, 0, 1, 0], 3, 1)
    assert record.rows[0].pulls[0].values.tolist() == [0.0, 0.5, 1.0, 0.0]
    assert not record.vectors[0].pulls
    assert not record.errors


def test_progress_is_shared_by_all_who_map_it(tmp_path: Path) -> None:
    mine, theirs = Progress(job_in(tmp_path)), Progress(job_in(tmp_path))
    mine.begun[1] = 7
    assert theirs.begun.tolist() == [0, 7]
    assert theirs.last == 0
    mine.end()
    assert theirs.last > 7


def test_the_register_is_that_of_the_checker() -> None:
    updater = RevealingUpdater("w0", SIZE, adds=False)
    register = 0
    for index in (2, 0, 3):
        updater.apply_block("w0", gradient_of(index, SIZE), 1.0, None)
        register = after(register, index)
    assert updater.values()["w0"].tolist() == [1.0, 0.0, 1.0, 1.0, register]


def test_geo_adds() -> None:
    updater = RevealingUpdater("w0", SIZE, adds=True)
    updater.apply_block("w0", gradient_of(1, SIZE), 1.0, None)
    assert updater.values()["w0"][:-1].tolist() == [0.0, 1.0, 0.0, 0.0]
