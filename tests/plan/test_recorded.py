"""Step traces from timelines and profiles: who starts what, who waits for what, and collectives of the program."""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import prepare
from argosy.engine.planner.step_trace import StepTrace
from argosy.plan.recorded import from_profile, from_timeline, read_trace, replayed
from argosy.timeline import read
from tests.engine.planner.steps import cluster
from tests.timeline.traces_by_hand import Event, event, trace, write


def node(name: str, op: str, begin: float, end: float, role: str = "communicate") -> Event:
    return event(name, role, begin, end, op=op, type="float32[4]", source="train.py:3")


def collective(
    kind: str, group: str, number: int, begin: float, end: float, started: float, nbytes: int
) -> Event:
    about = {"group": group, "number": number, "bytes": nbytes, "queue_us": begin - started, "wait_us": 0.0}
    return event(f"{kind} w@GRAD", "collective", begin, end, **about)


def wait(group: str, number: int, begin: float, end: float) -> Event:
    return event("wait for it", "wait", begin, end, group=group, number=number)


def flat_step(at: float, number: int, backward: float = 1000) -> list[Event]:
    """Forward 1 ms, backward, an all-reduce over sockets that is waited for 2 ms later, an update."""
    mid = at + 1000 + backward
    return [
        event(f"step {number}", "step", at, mid + 5000, number=number, program="main"),
        node("fc", "addmm", at, at + 1000, "forward"),
        node("mm", "mm", at + 1000, mid, "backward"),
        node("all_reduce_fused", "all_reduce_fused", mid, mid + 100),
        collective("all_reduce", "dp", number, mid + 50, mid + 4000, mid + 50, 4000),
        node("sum", "sum", mid + 100, mid + 2000, "backward"),
        node("wait", "wait", mid + 2000, mid + 4010),
        wait("dp", number, mid + 2005, mid + 4000),
        node("momentum", "fused_momentum", mid + 4010, mid + 5000, "optimize"),
    ]


def timeline(path: Path, *ranks: list[Event]) -> Path:
    return write(path, *(trace(i, events, len(ranks)) for i, events in enumerate(ranks)))


def test_a_timeline_gives_medians_spreads_and_who_waits_for_what(tmp_path: Path) -> None:
    events = [*flat_step(0, 1, 1000), *flat_step(10_000, 2, 1200), *flat_step(20_000, 3, 1600)]
    result = from_timeline(read(timeline(tmp_path, events)))
    assert [n.name for n in result.nodes] == ["fc", "mm", "all_reduce_fused", "sum", "wait", "momentum"]
    assert [n.actions for n in result.nodes] == [(), (), ("start dp#1",), (), ("wait dp#1",), ()]
    assert result.nodes[1].ms == pytest.approx(1.2)
    assert result.nodes[1].spread_ms == pytest.approx(1.4826 * 0.2)
    assert result.nodes[4].ms == pytest.approx(0.015)  # without the wait
    (bucket,) = result.collectives
    assert (bucket.kind, bucket.nbytes, bucket.group, bucket.is_flat) == ("all_reduce", 4000, "dp", True)


def test_a_hierarchical_all_reduce_becomes_one_collective_of_the_program(tmp_path: Path) -> None:
    events = [
        event("step 1", "step", 0, 10_000, number=1, program="main"),
        node("hierarchical", "all_reduce_hierarchical", 0, 1000),
        collective("reduce_scatter", "dp/intra2", 1, 100, 500, 100, 8000),
        wait("dp/intra2", 1, 100, 500),
        collective("all_reduce", "dp/inter2", 1, 600, 4000, 600, 4000),
        node("wait", "wait", 2000, 4500),
        wait("dp/inter2", 1, 2000, 4000),
        collective("barrier", "dp/intra2", 2, 4100, 4200, 4100, 0),
        wait("dp/intra2", 2, 4100, 4200),
    ]
    result = from_timeline(read(timeline(tmp_path, events)))
    (bucket,) = result.collectives
    assert (bucket.kind, bucket.nbytes, bucket.group, bucket.block) == (
        "all_reduce_hierarchical",
        8000,
        "dp",
        0,
    )
    assert [n.actions for n in result.nodes] == [(f"start {bucket.id}",), (f"wait {bucket.id}",)]
    assert [n.ms for n in result.nodes] == pytest.approx([0.6, 0.4])


def test_divided_updates_become_barriers_of_one_host(tmp_path: Path) -> None:
    events = [
        event("step 1", "step", 0, 10_000, number=1, program="main"),
        node("begin", "begin_updates", 0, 1000),
        collective("all_reduce", "dp", 1, 100, 500, 90, 0),
        wait("dp", 1, 95, 500),
    ]
    result = from_timeline(read(timeline(tmp_path, events)))
    assert [c.kind for c in result.collectives] == ["host_barrier"]
    assert result.nodes[0].actions == ("start dp#1", "wait dp#1")


def test_a_replay_has_the_collectives_as_they_were_executed_and_their_times(tmp_path: Path) -> None:
    late = [e | {"ts": e["ts"] + 300} for e in flat_step(0, 1)]
    for e in late:  # both ranks see its end at the same time
        if e["cat"] in ("collective", "wait"):
            e["dur"] -= 300
    traces, measured_ms = replayed(read(timeline(tmp_path, flat_step(0, 1), late)))
    assert measured_ms == pytest.approx(7.3)
    assert [c.ms for t in traces for c in t.collectives] == pytest.approx([3.65, 3.65])  # since rank 1 joined
    assert traces[1].before_ms == pytest.approx(0.3)


def queued_step(at: float, second_group: str) -> list[Event]:
    """Two all-reduces of 3 ms that start 1 ms apart; the second is queued if the communicator is the same."""
    begin = 4000 if second_group == "dp" else 2000
    number = 2 if second_group == "dp" else 1
    ends = (4000, begin + 3000)
    return [
        event("step 1", "step", at, ends[1] + 100, number=1, program="main"),
        node("first", "all_reduce_fused", at, 1000),
        collective("all_reduce", "dp", 1, 1000 - 1, ends[0], 1000 - 1, 4000),
        node("second", "all_reduce_fused", 1000, 2000),
        collective("all_reduce", second_group, number, begin - 1, ends[1], 2000 - 1, 4000),
        node("wait", "wait", 2000, ends[0]),
        wait("dp", 1, 2000, ends[0]),
        node("wait_1", "wait", ends[0], ends[1] + 100),
        wait(second_group, number, ends[0], ends[1]),
    ]


@pytest.mark.parametrize(("second_group", "measured_ms"), [("dp", 7.1), ("dp.1", 5.1)])
def test_a_replay_with_another_schedule_would_not_give_the_measured_time(
    tmp_path: Path, second_group: str, measured_ms: float
) -> None:
    """The step follows from queues and overlap: it is not put in as lags of single ranks."""
    events = queued_step(0, second_group)
    traces, measured = replayed(read(timeline(tmp_path, events, events)))
    topology = replace(cluster(1, 2), shared_memory=None)
    assert measured == pytest.approx(measured_ms)
    assert prepare(traces, topology).run().actors[0].step_ends[0] * 1e3 == pytest.approx(
        measured_ms, rel=1e-3
    )
    moved = {"dp": "dp.1", "dp.1": "dp"}[second_group]
    other = [
        replace(t, collectives=(t.collectives[0], replace(t.collectives[1], group=moved))) for t in traces
    ]
    wrong = prepare(other, topology).run().actors[0].step_ends[0] * 1e3
    assert abs(wrong / measured_ms - 1) > 0.2


def profile(nodes: list[tuple[str, str]], collectives: list[tuple[str, str, int]]) -> dict[str, Any]:
    described = [
        {"name": f"{op}_{i}", "op": op, "role": "communicate", "kind": kind, "source": "", "ms": 1.0}
        for i, (op, kind) in enumerate(nodes)
    ]
    started = [{"name": name, "group": group, "bytes": nbytes} for name, group, nbytes in collectives]
    memory = {"peak_bytes": 1000, "breakdown": {"parameters": 400}}
    return {"step": 5, "program": "main", "nodes": described, "collectives": started, "memory": memory}


def test_a_profile_assigns_collectives_by_order_and_type() -> None:
    content = profile(
        [
            ("all_reduce_fused", "f[1]"),
            ("mm", "f"),
            ("all_reduce_fused", "f[2]"),
            ("wait", "f[2]"),
            ("wait", "f[1]"),
        ],
        [("all_reduce a", "dp", 10), ("all_reduce b", "dp.1", 20)],
    )
    result = from_profile(content, "here")
    actions = [n.actions for n in result.nodes]
    assert actions == [("start dp#1",), (), ("start dp.1#2",), ("wait dp.1#2",), ("wait dp#1",)]
    assert result.memory is not None
    assert result.memory.peak_bytes == 1000


def test_a_profile_of_a_hierarchical_all_reduce_is_one_collective() -> None:
    parts = [("reduce_scatter a", "dp/intra2", 80), ("all_reduce a", "dp/inter2", 40)]
    content = profile(
        [("all_reduce_hierarchical", "f"), ("wait", "f")], [*parts, ("barrier a", "dp/intra2", 0)]
    )
    (bucket,) = from_profile(content, "here").collectives
    assert (bucket.kind, bucket.nbytes) == ("all_reduce_hierarchical", 80)


def test_what_cannot_be_converted_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belong to no node"):
        from_profile(profile([("mm", "f")], [("all_reduce a", "dp", 10)]), "here")
    with pytest.raises(ConfigError, match="write a step trace with requests"):
        from_profile(profile([("send_barrier", "f")], []), "here")
    with pytest.raises(ConfigError, match="is no profile of a rank"):
        from_profile({"nodes": [{}], "collectives": []}, "here")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ConfigError, match="is no trace"):
        read_trace(tmp_path / "x.json")


def test_a_step_trace_is_read_by_the_same_function(tmp_path: Path) -> None:
    traced = from_profile(profile([("mm", "f")], []), "here")
    traced.write(tmp_path / "trace.json")
    assert isinstance(read_trace(tmp_path / "trace.json"), StepTrace)
    (tmp_path / "rank0.profile.json").write_text(json.dumps(profile([("mm", "f")], [])))
    assert read_trace(tmp_path / "rank0.profile.json").nodes == traced.nodes
