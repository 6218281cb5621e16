"""A predicted step is a timeline: argosy.timeline reads it, and finds the predicted numbers in it."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.planner.predict_step import simulate_step
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.timeline_file import write_timeline
from argosy.engine.planner.topology import Straggler
from argosy.timeline import merge, read, summarize
from tests.engine.planner.steps import cluster, ps_step, step


def test_the_timeline_has_the_predicted_times(tmp_path: Path) -> None:
    predicted = simulate_step(step(20_000_000, buckets=3, kind="all_reduce_hierarchical"), cluster(2, 2))
    write_timeline(predicted, tmp_path)
    (times,) = summarize(read(tmp_path)).ranks
    prediction = predicted.prediction
    assert times.step_ms == pytest.approx(prediction.step_ms)
    assert times.exposed_ms == pytest.approx(prediction.exposed_ms)
    assert times.hidden_ms == pytest.approx(prediction.hidden_ms, abs=1e-6)
    assert (times.forward_ms, times.optimize_ms) == pytest.approx((10, 3))
    assert times.host == "predicted host 0, 4 ranks like it"


def test_a_straggler_is_found_in_the_predicted_timeline(tmp_path: Path) -> None:
    topology = cluster(2, 1, stragglers=(Straggler(1, 2.0),))
    write_timeline(simulate_step(step(1_000_000), topology), tmp_path)
    traces = read(tmp_path)
    merge(tmp_path, traces)
    straggler = summarize(traces).straggler
    assert straggler is not None
    assert straggler.rank == 1


def test_requests_to_servers_are_in_the_timeline(tmp_path: Path) -> None:
    predicted = simulate_step(ps_step("sync", 1_000_000, 1_000_000), cluster(2), PsSetup("sync"))
    write_timeline(predicted, tmp_path)
    names = [event["name"] for event in read(tmp_path)[0].of_kind("collective")]
    assert names == ["push push", "barrier barrier", "pull pull"]
