"""Loaders report the batches that were trained with, and nothing of an evaluation."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.engine.metrics import metrics_recorder as recorders
from argosy.engine.metrics.metrics_recorder import JobProcess, MetricsRecorder, StepTimes
from argosy.io import DataLoader, Dataset


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index, dtype="float32")


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsRecorder]:
    recorder = MetricsRecorder(tmp_path / "rank0.jsonl", JobProcess("rank", 0, 1, 0))
    recorder._period_s = 0.0
    monkeypatch.setattr(recorders, "_recorder", recorder)
    yield recorder
    recorder.close()


def reported(recorder: MetricsRecorder) -> list[tuple[int, int, int]]:
    assert recorder.path is not None
    lines = map(json.loads, recorder.path.read_text().splitlines())
    return [(r["epoch"], r["batch"], r["batches"]) for r in lines if r["kind"] == "progress"]


def train_step(recorder: MetricsRecorder) -> None:
    recorder.add_step(StepTimes(1, 1, 0, 0, 0, 4, 0))


@pytest.mark.parametrize("use_buffer_reader", [True, False])
def test_a_loader_of_training_reports_epochs_and_batches(
    records: MetricsRecorder, use_buffer_reader: bool
) -> None:
    loader = DataLoader(Numbers(), batch_size=4, use_buffer_reader=use_buffer_reader)
    for _ in range(2):
        for _ in loader:
            train_step(records)
    assert reported(records) == [(1, 1, 3), (1, 2, 3), (1, 3, 3), (2, 1, 3), (2, 2, 3), (2, 3, 3)]


def test_a_loader_of_an_evaluation_reports_nothing(records: MetricsRecorder) -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    train_step(records)
    assert len(list(loader)) == 3
    assert reported(records) == []


def test_the_length_of_a_generator_is_known_after_its_first_epoch(records: MetricsRecorder) -> None:
    paddle.enable_static()
    x = paddle.static.data("x", [None, 2])
    loader = DataLoader.from_generator([x], capacity=2)
    loader.set_batch_generator(lambda: (np.zeros((4, 2), dtype="float32") for _ in range(2)))
    for _ in range(2):
        for _ in loader():
            train_step(records)
    assert reported(records) == [(1, 1, None), (1, 2, None), (2, 1, 2), (2, 2, 2)]
