"""Predictions from a sketch of a step, the file of choices, the description of the job's hosts, and the log."""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.distributed.auto import choice_cache, job_topology
from argosy.distributed.auto.decision_log import DecisionLog, line
from argosy.distributed.auto.proposals import allowed_settings, proposals
from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.sketch import StepSketch
from argosy.distributed.auto.tuner import Decision
from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.topology import HostKind, Link, Topology

GIVEN = Setting()
MB = 1 << 20


def sketch() -> StepSketch:
    """Ten gradients of 4 MB; one exists every 20 ms of backward."""
    ready = tuple(110.0 + 20.0 * number for number in range(10))
    gradients = tuple((f"fc_{number}.w_0@GRAD", 4 * MB) for number in range(10))
    return StepSketch(ready, gradients, 290.0, update_ms=20.0, divided_ms=11.0, outside_ms=1.0)


def two_hosts(gbit_per_s: float) -> Topology:
    return Topology((HostKind("ethernet", 2, cores=4, ranks=2),), {"ethernet": Link(gbit_per_s, 50.0)})


def test_one_rank_after_the_other_without_communication() -> None:
    trace = sketch().trace(replace(GIVEN, overlap=True), hosts=2)
    assert sum(node.ms for node in trace.nodes) == pytest.approx(310.0, abs=0.1)
    assert sum(one.nbytes for one in trace.collectives) == 40 * MB
    assert len(trace.collectives) == 2, "buckets of 32 MB"
    assert len(sketch().trace(replace(GIVEN, bucket_mb=4), hosts=2).collectives) == 10


def test_overlap_of_several_buckets_is_proposed_on_a_link_that_matters() -> None:
    topology = two_hosts(5.0)
    found, now_ms = proposals(sketch(), allowed_settings(GIVEN, 4, 2), GIVEN, topology)
    assert found[0].setting.overlap
    assert found[0].setting.bucket_mb < 32
    assert found[0].predicted_ms < 0.95 * now_ms
    assert found[0].predicted_ms == min(p.predicted_ms for p in found)
    assert GIVEN not in [p.setting for p in found]
    assert all(p.run == 1 for p in found)


def test_the_prediction_of_the_current_setting_has_the_closed_form() -> None:
    """Two buckets of 36 and 4 MB one after the other: a ring of four ranks on two links."""
    ms = predict(sketch().trace(GIVEN, hosts=2), two_hosts(1.0), repeats=0).step_ms
    ring_ms = 2 * 3 / 4 * 40 * MB / 125e6 * 1e3
    assert ms == pytest.approx(311.0 + ring_ms, rel=0.03)


def test_on_one_host_a_setting_that_moves_variables_must_be_predicted_to_gain() -> None:
    topology = Topology((HostKind("none", 1, cores=4, ranks=2),), {"none": Link(10.0)})
    found, _ = proposals(sketch(), allowed_settings(GIVEN, 2, 1), GIVEN, topology)
    assert found == [], "divided updates are the fastest here"
    found, _ = proposals(
        sketch(), allowed_settings(GIVEN, 2, 1), replace(GIVEN, divides_updates=False), topology
    )
    assert found[0].setting.divides_updates
    assert found[0].run > found[0].skipped > 0


# --- the file of choices ----------------------------------------------------------------------------------


def test_choices_are_kept_by_model_and_link(tmp_path: Path) -> None:
    file, chosen, other = (
        tmp_path / "cache" / "cpu.json",
        Setting(bucket_mb=4, overlap=True),
        Setting(bucket_mb=8),
    )
    assert choice_cache.find(file, "model", 1.0) is None
    choice_cache.add(file, "model", 0.94, chosen, 12.5)
    choice_cache.add(file, "model", 10.0, other, 2.5)
    assert choice_cache.has(file, "model")
    assert choice_cache.find(file, "model", 1.1) == chosen
    assert choice_cache.find(file, "model", 9.0) == other
    assert choice_cache.find(file, "model", 3.0) is None
    assert choice_cache.find(file, "another model", 1.0) is None
    choice_cache.add(file, "model", 1.0, other, 11.0)
    assert choice_cache.find(file, "model", 0.94) == other
    choice_cache.add(file, "one host", 0.0, chosen, 1.0)
    assert choice_cache.find(file, "one host", 0.0) == chosen


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 9, "choices": {}}', '{"format": 1, "choices": {"model": [{}]}}']
)
def test_a_file_of_choices_that_is_invalid_has_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cpu.json"
    file.write_text(text)
    assert choice_cache.find(file, "model", 1.0) is None


def test_settings_of_other_versions_are_not_used() -> None:
    values = {"bucket_mb": 4}
    assert choice_cache.setting_of(values) is None
    complete = choice_cache.asdict(Setting())
    assert choice_cache.setting_of(complete) == Setting()
    assert choice_cache.setting_of(complete | {"overlap": "yes"}) is None


# --- hosts ------------------------------------------------------------------------------------------------


def test_the_hosts_of_a_file_get_the_ranks_of_the_job(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    two_hosts(25.0).write(file)
    topology = job_topology.described(2, 8, str(file))
    assert topology is not None
    assert (topology.num_hosts, topology.num_ranks, topology.links["ethernet"].gbit_per_s) == (2, 16, 25.0)
    with pytest.raises(ConfigError, match="describes 2 hosts, and the job has 3"):
        job_topology.described(3, 8, str(file))
    with pytest.raises(ConfigError):
        job_topology.described(2, 8, str(tmp_path / "missing.toml"))


def test_the_file_of_a_probe_in_the_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    assert job_topology.described(3, 1, "") is None
    two_hosts(25.0).write(tmp_path / job_topology.PROBE_FILE)
    topology = job_topology.described(3, 1, "")
    assert topology is not None
    assert (topology.num_hosts, topology.num_ranks) == (3, 3)


# --- the log ----------------------------------------------------------------------------------------------


def test_decisions_are_lines_and_json(tmp_path: Path) -> None:
    decisions = [
        Decision(0, "start", GIVEN, "that of the strategy"),
        Decision(50, "switch", Setting(overlap=True), "the difference is sure", Setting(overlap=True),
                 90.0, 95.0, 100.0, 0.05, 0.04, 0.06, 12, 0.5, 40.0),
    ]  # fmt: skip
    assert line(decisions[1]) == (
        "autotune, step 50: switch to buckets of 32 MB, overlap: 5.0% faster (4.0% to 6.0%) in 12 pairs, "
        "95.00 ms against 100.00 ms, predicted 90.00 ms: the difference is sure; 0.50 s of 40 s used"
    )
    log = DecisionLog(tmp_path / "autotune.json")
    log.update(decisions[:1], {"ranks": 4})
    log.update(decisions, {"ranks": 4})
    content = json.loads((tmp_path / "autotune.json").read_text())
    assert [d["kind"] for d in content["decisions"]] == ["start", "switch"]
    assert content["decisions"][1]["setting"]["overlap"] is True
    unwritable = DecisionLog(tmp_path / "missing" / "autotune.json")
    unwritable.update(decisions, {})
    assert unwritable.path is None
