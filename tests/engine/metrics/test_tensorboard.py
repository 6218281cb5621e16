"""Files of events: TensorBoard reads what was written."""

# SPDX-License-Identifier: Apache-2.0
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.reducing import ReducedValues
from argosy.engine.metrics.tensorboard import EventFile, TensorBoardSink, masked_crc32c


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own imports
        accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        run = accumulators.EventAccumulator(str(directory), size_guidance={"scalars": 0})
        run.Reload()
    tags = run.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in run.Scalars(tag)] for tag in tags}


def values(rank: int, step: int, **by_name: Any) -> Record:
    fields = {"step": step, "values": by_name, "reduce": {"lr": "last", "peak": "max"}}
    return Record(f"rank{rank}", "values", time.time(), fields)


def steps(rank: int, step: int) -> Record:
    lists = {"period_ms": [100.0], "busy_ms": [75.0], "exposed_ms": [25.0]}
    fields = {"step": step, "steps": 10, "group": 10, "examples": 160, "wall_s": 1.0, **lists}
    return Record(f"rank{rank}", "steps", time.time(), fields)


def test_the_checksum_is_that_of_rfc_3720() -> None:
    masked = masked_crc32c(b"123456789")
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    assert ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF == 0xE3069283


def test_scalars_are_read_back(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "run")
    for step in range(3):
        file.scalars(step, 1000.0 + step, {"loss": step / 2, "größe": -1.0})
    file.scalars(3, 1003.0, {"loss": math.nan, "größe": 1e300})
    file.close()
    scalars = read(tmp_path / "run")
    assert scalars["loss"][:3] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert math.isnan(scalars["loss"][3][1])
    assert scalars["größe"][3] == (3, math.inf)


def test_a_sink_writes_values_reduced_over_the_ranks_and_the_speed(tmp_path: Path) -> None:
    sink, view = TensorBoardSink(str(tmp_path)), JobView()

    def update(records: Sequence[Record]) -> None:
        view.update(records)
        sink.update({}, view, records)

    update([values(0, 1, loss=1.0, lr=0.5, peak=3.0), steps(0, 10)])
    update([values(1, 1, loss=2.0, lr=0.25, peak=4.0), steps(1, 10), values(0, 2, loss="inf")])
    sink.close()
    scalars = read(tmp_path)
    assert scalars["loss"] == [(1, 1.5), (2, math.inf)]
    assert scalars["lr"] == [(1, 0.25)]
    assert scalars["peak"] == [(1, 4.0)]
    assert scalars["speed/step_ms"] == [(10, 100.0)]
    assert scalars["speed/exposed_fraction"] == [(10, 0.25)]


def test_a_step_is_complete_when_other_ranks_had_time_to_report_it() -> None:
    reduced = ReducedValues(wait_s=5.0)
    assert list(reduced.update([values(0, 1, loss=1.0)], now=0.0)) == []
    assert list(reduced.update([values(1, 1, loss=3.0)], now=4.0)) == []
    assert [(n, s, v) for n, s, _, v in reduced.update([], now=5.0)] == [("loss", 1, 2.0)]
    assert list(reduced.rest()) == []


def test_a_directory_that_is_not_writable_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--tensorboard=.*cannot write there"):
        TensorBoardSink(str(tmp_path / "file"))
