"""The simulation equals closed forms where there are some, within 1 %."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import Collective, Node, StepTrace
from argosy.engine.planner.topology import SharedMemory, Switch
from tests.engine.planner.steps import cluster, ps_step, step

MB = 1_000_000


def close(value: float) -> object:
    return pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("hosts", [2, 3, 8, 64, 1000])
@pytest.mark.parametrize("latency_us", [0.0, 50.0])
def test_a_ring_all_reduce_takes_its_bytes_and_its_latencies(hosts: int, latency_us: float) -> None:
    exposed = predict(step(100 * MB), cluster(hosts, latency_us=latency_us)).exposed_ms
    assert exposed == close(2 * (hosts - 1) / hosts * 100 + 2 * (hosts - 1) * latency_us / 1e3)


def test_the_ring_of_several_ranks_per_host_sends_once_over_each_link() -> None:
    assert predict(step(100 * MB), cluster(2, ranks=4)).exposed_ms == close(2 * 7 / 8 * 100)


def test_halving_and_doubling_needs_fewer_rounds_for_the_same_bytes() -> None:
    collective = Collective("c", "all_reduce", 64 * MB, algorithm="halving_doubling")
    trace = StepTrace((Node("backward", 1.0, actions=("start c", "wait c")),), (collective,))
    expected = 2 * 15 / 16 * 64 + 2 * 4 * 0.1
    assert predict(trace, cluster(16, latency_us=100)).exposed_ms == close(expected)


def test_an_all_reduce_in_two_stages_is_the_sum_inside_and_the_rings_between_hosts() -> None:
    """2 hosts x 4 ranks, one chunk: sum in shared memory, 4 rings of a quarter over one link, 3 barriers."""
    memory = SharedMemory(gb_per_s=10, barrier_us=5)
    trace = step(8 * MB, kind="all_reduce_hierarchical")
    inside = 8 * 5 / 4 / 10 + 0.005
    between = 2 * 1 / 2 * 8  # each host sends half of the bucket twice
    assert predict(trace, cluster(2, 4, shared_memory=memory)).exposed_ms == close(inside + between + 0.005)


def test_memory_bandwidth_of_the_host_limits_the_sums_of_its_ranks() -> None:
    memory = SharedMemory(gb_per_s=10, host_gb_per_s=20, barrier_us=0)
    assert predict(step(8 * MB), cluster(1, 4, shared_memory=memory)).exposed_ms == close(8 * 5 / 4 * 4 / 20)


def test_an_oversubscribed_switch_limits_concurrent_rings() -> None:
    """8 hosts x 4 ranks on 2 switches: 4 rings between positions, each with one flow over each uplink."""
    trace = step(8 * MB, kind="all_reduce_hierarchical")
    memory = SharedMemory(gb_per_s=1e6, barrier_us=0)
    edge = 2 * 7 / 8 * 8 / 4
    free = predict(trace, cluster(8, 4, shared_memory=memory, switch=Switch(4))).exposed_ms
    slow = predict(
        trace, cluster(8, 4, shared_memory=memory, switch=Switch(4, oversubscription=16))
    ).exposed_ms
    assert free == close(4 * edge)
    assert slow == close(4 * edge * 4)


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 1), (4, 2), (16, 3)])
def test_a_star_of_parameter_servers_is_bound_by_the_links_of_its_centre(workers: int, servers: int) -> None:
    setup = PsSetup("sync", servers, request_us=0, push_s_per_gb=0, pull_s_per_gb=0, update_s_per_gb=0.5)
    trace = ps_step("sync", 60 * MB, 60 * MB)
    one_way = max(60, 60 * workers / servers)
    assert predict(trace, cluster(workers), setup).exposed_ms == close(2 * one_way + 0.5 * 60 / servers)


def test_requests_of_all_workers_queue_for_the_threads_of_a_server() -> None:
    setup = PsSetup(
        "sync", 1, threads=2, request_us=1000, push_s_per_gb=0, pull_s_per_gb=0, update_s_per_gb=0
    )
    exposed = predict(ps_step("sync", 1, 1), cluster(8), setup).exposed_ms
    assert exposed == close(2 * 8 / 2)


def test_asynchronous_workers_are_bound_by_a_full_server_or_by_themselves() -> None:
    setup = PsSetup("async", 1, threads=1, request_us=5000, push_s_per_gb=0, pull_s_per_gb=0)
    few = predict(ps_step("async", 1, 1, 50.0), cluster(2), setup).step_ms
    many = predict(ps_step("async", 1, 1, 50.0), cluster(12), setup).step_ms
    assert few == close(50 + 2 * 5)  # their requests do not overlap
    assert many == close(12 * 5)  # each of its pools is always busy


def test_geo_synchronizes_every_kth_step() -> None:
    setup = PsSetup("geo", 1, request_us=0, push_s_per_gb=0, pull_s_per_gb=0, k_steps=4)
    assert predict(ps_step("geo", 20 * MB, 20 * MB), cluster(1), setup).step_ms == close(10 + 40 / 4)


def test_a_reduce_scatter_over_sockets_is_a_reduce_to_each_rank() -> None:
    """Each of n reduces of B / n is a ring, and a part from every rank to the owner."""
    prediction = predict(step(64 * MB, kind="reduce_scatter"), cluster(4, latency_us=10))
    assert prediction.exposed_ms == close(2 * 3 / 4 * 64 + 4 * 4 * 0.01)
    sent = [use.megabytes for use in prediction.links if use.name == "ethernet tx of host 0"]
    assert sent == [close(3 / 4 * 64 + 3 * 64 / 16)]
