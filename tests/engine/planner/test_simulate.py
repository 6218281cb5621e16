"""The simulation runs what the runtime runs, in its order: main thread, communicators, shared memory, periods."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict, prepare, simulate_step
from argosy.engine.planner.simulate import Simulated
from argosy.engine.planner.step_trace import Collective, Node, StepTrace
from argosy.engine.planner.topology import HostKind, Interference, Link, SharedMemory, Straggler, Topology
from tests.engine.planner.steps import cluster, step

MB = 1_000_000


def collectives(simulated: Simulated, actor: int = 0) -> list[tuple[str, float, float]]:
    """Group, begin and end in milliseconds of the collectives of the first step."""
    return [
        (s.target.group, s.began * 1e3, s.ended * 1e3)  # type: ignore[union-attr]
        for s in simulated.actors[actor].started
        if s.step == 1
    ]


def test_collectives_of_one_communicator_run_in_order_while_the_main_thread_computes() -> None:
    simulated = simulate_step(step(20 * MB, buckets=2), cluster(2)).nominal
    assert collectives(simulated) == [("dp", 20.0, 40.0), ("dp", 40.0, 60.0)]
    assert [span.began * 1e3 for span in simulated.actors[0].spans[:2]] == [0.0, 20.0]


def test_two_communicators_share_the_link() -> None:
    simulated = simulate_step(step(20 * MB, buckets=2, communicators=2), cluster(2)).nominal
    # The first is alone for 10 ms; then both have half of the link until the first ends.
    assert collectives(simulated) == [("dp", 20.0, pytest.approx(50)), ("dp.1", 30.0, pytest.approx(60))]


def test_a_collective_in_shared_memory_runs_inside_the_wait() -> None:
    memory = SharedMemory(gb_per_s=15, barrier_us=0)
    simulated = simulate_step(step(10 * MB, buckets=2), cluster(1, 2, shared_memory=memory)).nominal
    assert collectives(simulated) == [
        ("dp", 30.0, pytest.approx(31)),
        ("dp", pytest.approx(32), pytest.approx(33)),
    ]


def test_a_wait_before_the_start_waits_for_the_collective_of_the_step_before() -> None:
    gather = Collective("gather", "all_gather_shards", 30 * MB)
    nodes = (
        Node("early layer", 10.0),
        Node("await_gathers", 0.0, role="communicate", actions=("wait gather",)),
        Node("rest", 10.0, role="backward"),
        Node("all_gather_shards", 0.0, role="communicate", actions=("start gather",)),
    )
    prediction = predict(StepTrace(nodes, (gather,)), cluster(2))
    assert prediction.step_ms == pytest.approx(30 + 10)  # 10 of 30 ms are hidden behind the first layer
    assert prediction.hidden_ms == pytest.approx(10)


def test_periodic_nodes_run_in_their_steps_only() -> None:
    nodes = (
        Node("compute", 10.0),
        Node("accumulate", 2.0, role="optimize", period="!merge"),
        Node("update", 6.0, role="optimize", period="merge", actions=("start c", "wait c")),
    )
    trace = StepTrace(nodes, (Collective("c", "all_reduce", 10 * MB),), periods={"merge": 4})
    assert predict(trace, cluster(2)).step_ms == pytest.approx(10 + (3 * 2 + 6 + 10) / 4)


def test_leaders_send_for_their_hosts_and_the_others_wait_for_them() -> None:
    bucket = Collective("c", "all_reduce_hierarchical", 8 * MB, by_leaders=True)
    trace = StepTrace((Node("backward", 5.0, actions=("start c", "wait c")),), (bucket,))
    memory = SharedMemory(gb_per_s=1e6, barrier_us=0)
    predicted = simulate_step(trace, cluster(2, 4, shared_memory=memory))
    assert predicted.prediction.classes == 2
    assert predicted.prediction.exposed_ms == pytest.approx(8, rel=0.01)


def test_a_straggler_delays_all_ranks_and_is_on_the_critical_path() -> None:
    even = predict(step(MB), cluster(8, 2))
    slow = predict(step(MB), cluster(8, 2, stragglers=(Straggler(5, 1.5),)))
    assert slow.step_ms - even.step_ms == pytest.approx(0.5 * even.busy_ms, rel=0.02)
    assert slow.bound.startswith("computation takes 93%")


def test_a_host_with_a_slow_link_delays_the_ring() -> None:
    links = {"fast": Link(8), "slow": Link(2)}
    topology = Topology((HostKind("fast", 3), HostKind("slow", 1)), links)
    assert predict(step(100 * MB), topology).exposed_ms == pytest.approx(2 * 3 / 4 * 100 * 4, rel=0.01)


def test_faster_hosts_compute_faster() -> None:
    trace = StepTrace((Node("compute", 10.0),))
    assert predict(trace, Topology((HostKind("e", speed=2.0),), {"e": Link(1)})).step_ms == pytest.approx(5)


def test_communication_slows_computation_down_while_it_runs() -> None:
    trace = step(10 * MB, buckets=2)
    alone, disturbed = (
        predict(trace, cluster(2, interference=Interference(computation=c))) for c in (0.0, 0.25)
    )
    assert disturbed.busy_ms - alone.busy_ms == pytest.approx(2.25, rel=0.01)
    # In 10 ms of the first ring 8 ms of backward are done; the first update overlaps with the second ring.


def test_threads_of_communicators_take_cores_from_computation() -> None:
    """One core: a ring needs half of it; backward overlaps with the first one, an update with the second."""
    link = Link(8, cpu_s_per_gb=0.5)
    free, shared = (
        predict(step(10 * MB, buckets=2), Topology((HostKind("e", 2, cores=cores),), {"e": link}))
        for cores in (2, 1)
    )
    assert free.busy_ms == pytest.approx(32)
    assert shared.busy_ms == pytest.approx(32 + 5 + 1, rel=0.01)


def test_more_ranks_than_cores_share_them() -> None:
    topology = Topology((HostKind("e", cores=2, ranks=4),), {"e": Link(1)})
    assert predict(StepTrace((Node("compute", 10.0),)), topology).step_ms == pytest.approx(20)


def test_the_band_widens_with_the_spread_and_the_slowest_of_many_ranks_is_slower() -> None:
    few, many = (predict(step(MB, spread_ms=1.0), cluster(hosts)) for hosts in (2, 512))
    assert few.low_ms < few.step_ms < few.high_ms
    assert many.step_ms - many.nominal_ms > few.step_ms - few.nominal_ms > 0
    # The largest of 512 normal values is 3.0 deviations above their mean; a step has two nodes with a spread.
    assert many.step_ms - many.nominal_ms == pytest.approx(3.0 * 2**0.5, rel=0.15)


def test_the_same_seed_draws_the_same_band() -> None:
    first, second = (predict(step(MB, spread_ms=1.0), cluster(4), seed=7) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "kind", ["all_reduce", "all_reduce_hierarchical", "reduce_scatter", "all_gather_shards"]
)
@pytest.mark.parametrize("stragglers", [(), (Straggler(3, 1.4),)])
def test_classes_of_ranks_give_what_ranks_one_by_one_give(
    kind: str, stragglers: tuple[Straggler, ...]
) -> None:
    trace = step(20 * MB, kind=kind, buckets=3, communicators=2)  # type: ignore[arg-type]
    topology = cluster(4, 2, latency_us=20, stragglers=stragglers)
    classes, every = (prepare([trace], topology, one_by_one=o) for o in (False, True))
    assert len(classes.classes.ranks) < len(every.classes.ranks) == 8
    assert classes.run().step_s == pytest.approx(every.run().step_s, rel=1e-6)


def test_a_measured_time_replaces_the_model() -> None:
    trace = step(100 * MB)
    measured = replace(trace, collectives=tuple(replace(c, ms=7.0) for c in trace.collectives))
    assert predict(measured, cluster(2)).exposed_ms == pytest.approx(7)


def test_ranks_of_other_programs_are_rejected() -> None:
    with pytest.raises(ConfigError, match="rank 1 have other collectives"):
        predict([step(MB), step(MB, buckets=2)], cluster(2))
    with pytest.raises(ConfigError, match="3 traces for 2 ranks"):
        predict([step(MB)] * 3, cluster(2))


def test_divided_updates_cannot_be_simulated_on_several_hosts() -> None:
    trace = step(0, kind="host_barrier")
    assert predict(trace, cluster(1, 2)).step_ms > 0
    with pytest.raises(ConfigError, match="divide_updates = False"):
        predict(trace, cluster(2, 2))


def test_4096_ranks_are_one_class_and_few_events() -> None:
    prediction = predict(
        step(25 * MB, kind="all_reduce_hierarchical", buckets=8, spread_ms=0.1), cluster(512, 8)
    )
    assert prediction.classes == 1
    assert prediction.events < 1000
    straggling = cluster(512, 8, stragglers=(Straggler(77, 1.3),))
    assert predict(step(25 * MB, kind="all_reduce_hierarchical"), straggling).classes == 4


def test_the_sentence_says_what_bounds_the_step() -> None:
    assert "the bandwidth of the link 'ethernet' takes" in predict(step(500 * MB), cluster(2)).bound
    assert "the latency of 'ethernet' takes" in predict(step(1000), cluster(512, latency_us=200)).bound
    assert predict(step(1000), cluster(2)).bound.startswith("computation takes 100% of the step, forward 4")
    assert predict(step(900 * MB), cluster(1, 4)).bound.startswith("collectives in shared memory take")
