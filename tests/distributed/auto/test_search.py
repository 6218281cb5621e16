"""Templates, node times, step traces and the search: settings that never ran are predicted from a measured program."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.distributed.auto.node_times import NodeTime, NodeTimes, fitted, read_node_times
from argosy.distributed.auto.search import SAME, Search, nearest_first
from argosy.distributed.auto.setting import Setting
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.planner.topology import Topology
from tests.distributed.auto.training import BATCH, cluster, node_times, template


def search(topology: Topology, layers: int = 3) -> Search:
    made, loss = template(layers)
    return Search(made, node_times(loss), topology, (loss.name,))


def test_the_times_of_nodes_add_up_to_the_step() -> None:
    _, loss = template()
    times = node_times(loss)
    gaps = times.gap_ms * len(times.nodes)
    assert sum(n.ms for n in times.nodes) + times.before_ms + times.after_ms + gaps == pytest.approx(
        times.step_ms
    )
    assert {n.role for n in times.nodes} == {"forward", "backward", "optimize"}
    parameters = 3 * (32 * 32 + 32) + 32 + 1
    assert times.update_bytes == 4 * parameters
    assert times.examples == BATCH


def test_node_times_are_read_back(tmp_path: Path) -> None:
    times = NodeTimes(
        (NodeTime("h", "mm", "float32[N, 4]", "a.py:1", "forward", 1.5, 0.1),), 2.0, 0.2, 0.1, 0.01
    )
    times.write(tmp_path / "times.json")
    assert read_node_times(tmp_path / "times.json") == times
    (tmp_path / "times.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no format 'argosy.node_times'"):
        read_node_times(tmp_path / "times.json")


def test_times_of_another_batch_are_on_a_line() -> None:
    def at(examples: int, ms: float) -> NodeTimes:
        node = NodeTime("h", "mm", "float32[N, 4]", "", "forward", ms, 0.0)
        return NodeTimes((node,), ms + 1, 0.5, 0.5, 0.0, examples)

    fit = fitted([at(8, 3.0), at(16, 5.0)], 32)
    assert fit.nodes[0].ms == pytest.approx(9.0)
    assert (fit.examples, fit.step_ms) == (32, pytest.approx(10.0))
    with pytest.raises(ConfigError, match="measure two or more"):
        fitted([at(8, 3.0)], 32)


@pytest.mark.parametrize(
    ("setting", "hosts", "kinds"),
    [
        (Setting(), 2, {"all_reduce"}),
        (Setting(hierarchical="reduce_scatter"), 2, {"all_reduce_hierarchical"}),
        (Setting(hierarchical="leaders", overlap=True), 2, {"all_reduce_hierarchical"}),
        (Setting(sharding=True), 2, {"reduce_scatter", "all_gather_shards"}),
        (Setting(), 1, {"host_barrier"}),
        (Setting(divides_updates=False), 1, {"all_reduce"}),
        (Setting(wire_dtype="bfloat16"), 2, {"all_reduce"}),
    ],
)
def test_a_trace_has_the_collectives_of_its_setting(setting: Setting, hosts: int, kinds: set[str]) -> None:
    candidates = search(cluster(hosts))
    trace = candidates.trace(setting)
    assert {c.kind for c in trace.collectives} == kinds
    started = [a for n in trace.nodes for a in n.actions if a.startswith("start ")]
    waited = [a for n in trace.nodes for a in n.actions if a.startswith("wait ")]
    assert (
        sorted(a[6:] for a in started)
        == sorted(a[5:] for a in waited)
        == sorted(c.id for c in trace.collectives)
    )
    gradients = sum(
        c.nbytes for c in trace.collectives if c.kind not in ("all_gather_shards", "host_barrier")
    )
    bytes_of_one = 4 * (3 * (32 * 32 + 32) + 33)
    if kinds != {"host_barrier"}:
        expected = bytes_of_one / 2 if setting.wire_dtype else bytes_of_one
        assert expected <= gradients <= 1.2 * expected  # slots are aligned


def test_compute_times_are_those_of_the_measured_program() -> None:
    candidates = search(cluster())
    trace = candidates.trace(Setting(bucket_mb=4))
    by_role = {
        role: sum(n.ms for n in trace.nodes if n.role == role) for role in ("forward", "backward", "optimize")
    }
    measured = {
        role: sum(n.ms for n in candidates.times.nodes if n.role == role)
        for role in ("forward", "backward", "optimize")
    }
    assert by_role["forward"] == pytest.approx(measured["forward"], rel=0.01)
    assert by_role["backward"] == pytest.approx(
        measured["backward"], rel=0.25
    )  # products into the bucket are not in it
    assert by_role["optimize"] == pytest.approx(measured["optimize"], rel=0.25)


def test_a_program_with_other_nodes_than_the_measured_one_is_an_error() -> None:
    candidates = search(cluster())
    candidates.times = replace(candidates.times, nodes=candidates.times.nodes[:3])
    candidates.times.by_label.clear()
    with pytest.raises(ConfigError, match="nodes have no measured time, for example"):
        candidates.trace(Setting())


@pytest.mark.slow
def test_the_best_setting_of_a_slow_link_sends_less_between_hosts() -> None:
    candidates = search(cluster(gbit_per_s=0.002), layers=1)
    ranked = candidates.best()
    given = next(c for c in ranked if c.setting == Setting())
    assert ranked[0].prediction.step_ms < 0.85 * given.prediction.step_ms
    assert ranked[0].setting.hierarchical
    assert ranked[0].prediction.step_ms <= (1 + SAME) * min(c.prediction.step_ms for c in ranked)
    candidates.memory_bytes = 1
    assert not any(map(candidates.fits, ranked))
    candidates.best()
    assert any(setting.recompute for setting in candidates.known)


def test_of_equal_settings_the_nearest_to_the_given_one_is_first() -> None:
    times = {Setting(bucket_mb=1, overlap=True): 10.0, Setting(bucket_mb=4): 10.04, Setting(): 10.1}
    unfit = {Setting(bucket_mb=64): 9.0}

    def ranked(settings: dict[Setting, float], given: Setting) -> list[Setting]:
        order = lambda s: (s in unfit, settings[s])  # noqa: E731
        return nearest_first(settings, order, lambda s: s, given)

    overlap, small, plain = times
    assert ranked(times, Setting()) == [small, overlap, plain]
    assert ranked(times, overlap) == [overlap, small, plain]
    assert ranked(times | unfit, Setting()) == [small, overlap, plain, *unfit]
    assert ranked({}, Setting()) == []


def test_a_template_is_not_changed_by_building_programs() -> None:
    made, _ = template()
    before = str(made.program)
    program = made.build(Setting(overlap=True), 4, 2)
    assert "all_reduce" in str(program)
    assert str(made.program) == before
    assert "all_reduce" not in str(default_main_program())


@pytest.mark.parametrize("switch", ["localsgd", "dgc"])
def test_strategies_that_reduce_no_gradients_are_rejected(switch: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy.auto and strategy.{switch} are both on"):
        template(**{switch: True})
