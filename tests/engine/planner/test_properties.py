"""Properties of the simulation for any schedule: conservation, order, and that a better cluster is not slower."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.planner.groups import groups_of
from argosy.engine.planner.patterns import pattern
from argosy.engine.planner.predict_step import prepare, simulate_step
from argosy.engine.planner.step_trace import Collective, Node, StepTrace
from argosy.engine.planner.timeline_file import order_of_nodes
from argosy.engine.planner.topology import HostKind, Interference, Link, Topology

TOLERANCE = 1 + 1e-6
kinds = st.sampled_from(
    ["all_reduce", "all_reduce_hierarchical", "reduce_scatter", "broadcast", "all_gather_shards"]
)


@st.composite
def traces(draw: st.DrawFn, communicators: int = 1) -> StepTrace:
    """Nodes in any order in which each wait follows its start; some waits at once, some much later."""
    count = draw(st.integers(1, 5))
    collectives = tuple(
        Collective(
            f"c{i}",
            draw(kinds),
            draw(st.integers(0, 50_000_000)),
            group=f"dp.{i % communicators}" if i % communicators else "dp",
        )
        for i in range(count)
    )
    nodes, pending = [], list[str]()
    for one in collectives:
        nodes.append(Node(f"compute {one.id}", draw(st.floats(0, 30)), role="backward"))
        nodes.append(Node(f"start {one.id}", 0.1, role="communicate", actions=(f"start {one.id}",)))
        pending.append(one.id)
        while pending and draw(st.booleans()):
            name = pending.pop(0)
            nodes.append(Node(f"wait {name}", 0.1, role="communicate", actions=(f"wait {name}",)))
    nodes += [Node(f"wait {name}", 0.1, role="communicate", actions=(f"wait {name}",)) for name in pending]
    return StepTrace((*nodes, Node("end", 1.0, role="optimize")), collectives)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    ranks = draw(st.integers(1, 4))
    link = Link(
        draw(st.floats(0.1, 100)), draw(st.floats(0, 100)), draw(st.floats(0, 10)), draw(st.floats(0, 1))
    )
    interference = Interference(draw(st.floats(0, 0.5)), draw(st.floats(0, 0.5)))
    kind = HostKind("e", draw(st.integers(1, 6)), cores=draw(st.integers(1, 8)), ranks=ranks)
    return Topology((kind,), {"e": link}, interference=interference)


def step_s(trace: StepTrace, topology: Topology) -> float:
    return prepare([trace], topology).run().step_s


@settings(deadline=None, max_examples=60)
@given(traces(), topologies(), st.floats(1, 20))
def test_more_bandwidth_is_never_slower(trace: StepTrace, topology: Topology, factor: float) -> None:
    link = topology.links["e"]
    faster = replace(topology, links={"e": replace(link, gbit_per_s=link.gbit_per_s * factor)})
    assert step_s(trace, faster) <= step_s(trace, topology) * TOLERANCE


@settings(deadline=None, max_examples=60)
@given(traces(), topologies(), st.floats(0, 1000))
def test_adding_latency_never_helps(trace: StepTrace, topology: Topology, added_us: float) -> None:
    link = topology.links["e"]
    slower = replace(topology, links={"e": replace(link, latency_us=link.latency_us + added_us)})
    assert step_s(trace, topology) <= step_s(trace, slower) * TOLERANCE


@settings(deadline=None, max_examples=60)
@given(traces(communicators=3), topologies())
def test_work_is_conserved(trace: StepTrace, topology: Topology) -> None:
    """Every resource serves exactly what the collectives of all steps take of it, and not faster than it can."""
    simulated = prepare([trace], topology).run()
    demanded = dict.fromkeys(simulated.resources, 0.0)
    for started in {s: None for actor in simulated.actors for s in actor.started}:
        assert started.cost is not None
        for key, amount in started.cost.takes.items():
            demanded[key] += amount
    ends = [s.ended for actor in simulated.actors for s in actor.started]
    end = max([*ends, *(actor.step_ends[-1] for actor in simulated.actors)])
    for key, resource in simulated.resources.items():
        assert resource.served == pytest.approx(demanded[key], rel=1e-6, abs=1.0)
        if resource.kind != "cores":
            assert resource.served <= resource.capacity * end * TOLERANCE + 1


@settings(deadline=None, max_examples=60)
@given(traces(communicators=2), topologies())
def test_nothing_starts_before_its_inputs_and_nodes_keep_their_order(
    trace: StepTrace, topology: Topology
) -> None:
    simulated = prepare([trace], topology).run()
    for actor in simulated.actors:
        assert order_of_nodes(actor, 1) == [node.name for node in trace.nodes]
        begins = [span.began for span in actor.spans]
        assert begins == sorted(begins)
        assert all(a.ended <= b.began + 1e-12 for a, b in zip(actor.spans, actor.spans[1:], strict=False))
        for started in actor.started:
            if started.ended < 0:
                continue
            assert started.began >= max(started.joined.values()) - 1e-12
            for begin, end in started.waits.get(actor.number, ()):
                assert begin <= end == pytest.approx(started.ended)
        in_order: dict[str, float] = {}
        for started in actor.started:
            communicator = started.target.communicator  # type: ignore[union-attr]
            if started.target.transport == "network":  # type: ignore[union-attr]
                assert started.began >= in_order.get(communicator, 0.0) - 1e-12
                in_order[communicator] = started.ended


@settings(deadline=None, max_examples=60)
@given(traces(), topologies())
def test_the_parts_of_a_step_add_up(trace: StepTrace, topology: Topology) -> None:
    p = simulate_step(trace, topology).prediction
    assert p.busy_ms + p.exposed_ms == pytest.approx(p.nominal_ms)
    assert p.hidden_ms <= p.communication_ms * TOLERANCE + 1e-9
    assert sum(item.ms for item in p.critical_path) == pytest.approx(p.nominal_ms, rel=1e-6)
    assert p.nominal_ms >= sum(node.ms for node in trace.nodes) / TOLERANCE


@settings(deadline=None)
@given(
    st.sampled_from(
        ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_each", "broadcast_each", "barrier"]
    ),
    st.integers(2, 40),
    st.integers(1, 10_000_000),
)
def test_every_rank_gets_what_it_needs_and_no_byte_is_lost(kind: str, size: int, nbytes: int) -> None:
    messages = pattern(kind, "ring", size, nbytes)
    received = np.bincount(messages.receivers, weights=messages.nbytes, minlength=size)
    shards = (size - 1) / size * nbytes
    least = {"all_gather": (size - 1) * nbytes, "broadcast": nbytes, "all_reduce": 2 * shards, "reduce": 0.0}
    others = received[1:] if kind == "broadcast" else received  # without the root
    assert (others >= least.get(kind, 0.0 if kind == "barrier" else shards) * (1 - 1e-9)).all()
    assert (messages.senders != messages.receivers).all()
    if kind.startswith("broadcast"):
        assert received.sum() == pytest.approx((size - 1) * nbytes)  # each byte once to each rank


@settings(deadline=None, max_examples=60)
@given(topologies(), st.integers(1, 50_000_000), kinds)
def test_the_bytes_that_hosts_send_are_those_that_hosts_receive(
    topology: Topology, nbytes: int, kind: str
) -> None:
    collective = Collective("c", kind, nbytes)  # type: ignore[arg-type]
    trace = StepTrace((Node("n", 1.0, actions=("start c", "wait c")),), (collective,))
    simulation = prepare([trace], topology, one_by_one=True)
    simulated = simulation.run()
    sums = {key: sum(r.served for k, r in simulated.resources.items() if k[0] == key) for key in ("tx", "rx")}
    assert sums["tx"] == pytest.approx(sums["rx"], rel=1e-6, abs=1.0)
    started = {s: None for actor in simulated.actors for s in actor.started}
    assert sums["tx"] == pytest.approx(sum(s.cost.wire_bytes for s in started if s.cost), rel=1e-6, abs=1.0)


def test_groups_are_rows_of_ranks() -> None:
    assert groups_of("dp.1/inter2", 4).tolist() == [[0, 2], [1, 3]]
