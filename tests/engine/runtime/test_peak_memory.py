"""The peak of a step: it is what torch's profiler sees, it follows what is fed, and it says what it is for."""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import argosy as paddle
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.peak_memory import MemoryReport, high_water_mark

Build = Callable[[Variable], Variable]


def convolutional(x: Variable) -> Variable:
    nn = paddle.static.nn
    x = nn.batch_norm(nn.conv2d(x, 16, 3, padding=1, bias_attr=False), act="relu")
    for _ in range(3):
        x = nn.conv2d(x, 16, 3, padding=1, act="relu")
    return nn.fc(x.mean((2, 3)), 10)


def attentive(x: Variable) -> Variable:
    """Matrix products, views, masks, sums of a fork."""
    nn = paddle.static.nn
    x = nn.fc(x.flatten(1), 256)
    x = x + F.dropout(F.gelu(nn.fc(F.layer_norm(x, [256]), 1024)), 0.1)[:, :256]
    return torch.softmax(nn.fc(x, 256), 1)


def train(build: Build, batch: int) -> tuple[Executor, Callable[[], object]]:
    x = paddle.static.data("x", [None, 3, 32, 32])
    loss = torch.mean(build(x) ** 2)
    paddle.optimizer.Adam(0.001).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    given = {"x": torch.randn(batch, 3, 32, 32)}
    return exe, lambda: exe.run(feed=given, fetch_list=[loss])


def own(report: MemoryReport) -> int:
    """What the step itself allocates."""
    s = report.breakdown
    return s.gradients + s.activations + s.temporaries


def seen_by_torch(step: Callable[[], object], folder: Path) -> int:
    """The most that a step has allocated at a time, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    seen.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    alive = most = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most


@pytest.mark.parametrize("build", [convolutional, attentive])
def test_the_peak_is_what_torchs_profiler_sees(build: Build, tmp_path: Path) -> None:
    exe, step = train(build, 32)
    step()
    step()
    seen = seen_by_torch(step, tmp_path)
    assert own(exe.memory_report()) == pytest.approx(seen, rel=0.03)


def test_the_peak_follows_the_sizes_that_are_fed() -> None:
    exe, step = train(convolutional, 8)
    step()
    small = exe.memory_report()
    x = default_main_program().var("x")
    for batch in (16, 8):
        exe.run(feed={x.name: torch.randn(batch, 3, 32, 32)})
        report = exe.memory_report()
        assert report.breakdown.parameters == small.breakdown.parameters
        assert report.breakdown.feeds == batch * 3 * 32 * 32 * 4
        assert report.breakdown.activations == pytest.approx(
            small.breakdown.activations * batch / 8, rel=0.01
        )


def test_the_shares_add_up_and_name_what_they_are() -> None:
    exe, step = train(convolutional, 8)
    step()
    report = exe.memory_report()
    parameters = sum(p.value.nbytes for p in default_main_program().all_parameters())
    assert report.peak_bytes == report.breakdown.total()
    assert report.breakdown.parameters == parameters
    assert report.breakdown.state > 2 * parameters  # Adam's two moments
    assert report.source.startswith("test_peak_memory.py:")
    sizes = [value.nbytes for value in report.largest]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < len(sizes) <= 10


def test_a_report_is_a_table() -> None:
    exe, step = train(convolutional, 8)
    step()
    text = str(exe.memory_report())
    assert text.startswith("peak memory of main: ")
    for word in ("parameters", "kept for backward", "largest values there:", "float32[N, 16, 32, 32]"):
        assert word in text


def test_a_training_program_logs_its_peak_once(caplog: pytest.LogCaptureFixture) -> None:
    _, step = train(convolutional, 2)
    logging.getLogger("argosy").addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, "argosy"):
            step()
            step()
    finally:
        logging.getLogger("argosy").removeHandler(caplog.handler)
    lines = {r.getMessage() for r in caplog.records if "peak memory of main" in r.getMessage()}
    assert len(lines) == 1
    assert "kept for backward" in lines.pop()


def test_without_training_nothing_is_kept() -> None:
    x = default_main_program().data("x", [None, 4])
    y = torch.sin(torch.cos(x))
    exe = Executor()
    exe.run(feed={"x": torch.randn(8, 4)}, fetch_list=[y])
    shares = exe.memory_report().breakdown
    assert (shares.activations, shares.gradients, shares.parameters) == (0, 0, 0)
    assert shares.temporaries == 2 * 8 * 4 * 4


def test_a_program_that_was_not_run_has_no_sizes() -> None:
    with pytest.raises(ConfigError, match=r"'main' has not been run by this executor.*run it once"):
        Executor().memory_report()


def test_the_process_has_at_least_what_the_step_takes() -> None:
    exe, step = train(convolutional, 32)
    step()
    report = exe.memory_report()
    assert report.measured_bytes is not None
    assert report.measured_bytes >= report.peak_bytes
    assert (high_water_mark() or 0) >= report.measured_bytes
