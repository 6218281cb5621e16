"""Activities share links max-min fairly and cores like threads; what they take is what the resource serves."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.planner.fluid import Activity, Clock, Resource


def ends(clock: Clock, *activities: Activity) -> list[float]:
    for activity in activities:
        clock.begin(activity)
    clock.run()
    return [activity.ended for activity in activities]


def flow(nbytes: float, *links: Resource, alone_s: float | None = None) -> Activity:
    alone = max(nbytes / link.capacity for link in links) if alone_s is None else alone_s
    return Activity("flow", "network", alone, dict.fromkeys(links, nbytes), nbytes)


def test_two_flows_share_a_link_and_the_second_gets_all_of_it_in_the_end() -> None:
    link = Resource("link", "link", 100.0)
    assert ends(Clock(), flow(100, link), flow(300, link)) == pytest.approx([2.0, 4.0])
    assert link.served == pytest.approx(400)


def test_a_flow_that_another_link_limits_leaves_the_rest_to_the_others() -> None:
    shared, slow = Resource("shared", "link", 100.0), Resource("slow", "link", 20.0)
    assert ends(Clock(), flow(20, shared, slow), flow(80, shared)) == pytest.approx([1.0, 1.0])


def test_an_activity_with_many_flows_gets_many_shares() -> None:
    link = Resource("link", "link", 100.0)
    many = Activity("3 flows", "network", 1.0, {link: 300.0}, 100.0)
    assert ends(Clock(), many, flow(100, link)) == pytest.approx([4.0, 4.0])


def test_latency_leaves_the_link_to_others() -> None:
    link = Resource("link", "link", 100.0)
    assert ends(Clock(), flow(50, link, alone_s=1.0), flow(50, link, alone_s=1.0)) == pytest.approx(
        [1.0, 1.0]
    )


def test_a_thread_that_needs_little_gets_it_and_computation_the_rest() -> None:
    cores = Resource("cores", "cores", 1.0)
    compute = Activity("compute", "compute", 0.7, threads={cores: 1.0}, thread_counts={cores: 1.0})
    network = Activity("ring", "network", 1.0, threads={cores: 0.3}, thread_counts={cores: 1.0})
    assert ends(Clock(), compute, network) == pytest.approx([1.0, 1.0])


def test_an_activity_without_duration_ends_at_once() -> None:
    assert ends(Clock(), Activity("nothing", "delay", 0.0)) == [0.0]
