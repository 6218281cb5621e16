"""Links: measured over real sockets, compared with their neighbours."""

# SPDX-License-Identifier: Apache-2.0
import socket
from itertools import combinations

import pytest

from argosy.doctor.links import (
    MAX_ROUNDS,
    MeasuredLink,
    better,
    clocks,
    judge,
    rounds,
    seconds_per_direction,
    suspects,
)
from argosy.doctor.tcp import LinkServer, measure
from argosy.engine.net import Endpoint

NAMES = ("a", "b", "c", "d")
FAST = 9.4e9


def mesh(hosts: int, rate: float = FAST, **slow: float) -> list[MeasuredLink]:
    """All links, with other rates for some: `a_b=1e9`."""
    return [
        MeasuredLink(a, b, slow.get(f"{NAMES[a]}_{NAMES[b]}", rate), 50e-6)
        for a in range(hosts)
        for b in range(hosts)
        if a != b
    ]


def odd(links: list[MeasuredLink], **speeds: float) -> dict[str, str]:
    checks = judge(links, NAMES, {NAMES.index(name): speed for name, speed in speeds.items()})
    return {check.where: check.status for check in checks if check.status != "ok"}


def test_a_link_is_measured_in_both_directions() -> None:
    with LinkServer("127.0.0.1") as server:
        figures = measure(server.offer, "127.0.0.1", 0.02)
        assert figures.sent > 1e6
        assert figures.received > 1e6
        assert 0 < figures.latency_s < 1
        assert abs(figures.clock_s) <= figures.latency_s  # one clock
        assert measure(server.offer, "127.0.0.1", 0.02).sent > 1e6  # a second client


def test_a_client_without_the_key_gets_no_reply() -> None:
    with LinkServer("127.0.0.1") as server:
        endpoint = server.offer.split()[0]
        with pytest.raises(OSError):
            measure(f"{endpoint} {bytes(16).hex()}", "127.0.0.1", 0.02)
        assert measure(server.offer, "127.0.0.1", 0.02).sent > 1e6


def test_a_command_for_too_many_bytes_ends_the_connection() -> None:
    with LinkServer("127.0.0.1") as server:
        endpoint, key = server.offer.split()
        host, port = Endpoint.parse(endpoint)
        with socket.create_connection((host, port)) as client:
            client.sendall(bytes.fromhex(key) + b"D" + (1 << 40).to_bytes(8, "big"))
            assert client.recv(1) == b""


def test_a_server_that_is_closed_cannot_be_reached() -> None:
    with LinkServer("127.0.0.1") as server:
        offer = server.offer
    with pytest.raises(ConnectionRefusedError):
        measure(offer, "127.0.0.1", 0.02)


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 7, 8])
def test_every_pair_is_measured_once_and_no_host_twice_in_a_round(hosts: int) -> None:
    schedule = rounds(hosts)
    for pairs in schedule:
        players = [host for pair in pairs for host in pair]
        assert len(players) == len(set(players))
    everything = [(min(pair), max(pair)) for pairs in schedule for pair in pairs]
    assert sorted(everything) == list(combinations(range(hosts), 2))


def test_the_time_is_bounded_with_many_hosts() -> None:
    schedule = rounds(500)
    assert len(schedule) == MAX_ROUNDS
    assert {host for pairs in schedule for pair in pairs for host in pair} == set(range(500))
    assert seconds_per_direction(500) * 2 * len(schedule) <= 6.0


def test_equal_links_are_ok() -> None:
    assert odd(mesh(2)) == odd(mesh(4)) == {}
    assert odd(mesh(4, a_b=0.6 * FAST, c_a=0.7 * FAST)) == {}


def test_the_slow_direction_of_two_hosts_is_named() -> None:
    assert odd(mesh(2, a_b=3e9)) == {"a -> b": "warning"}
    assert odd(mesh(2, a_b=0.5e9)) == {"a -> b": "failure"}


def test_one_slow_link_is_named_and_its_neighbours_are_not() -> None:
    links = mesh(4, b_c=1e9, c_b=1e9)
    assert odd(links) == {"b -> c": "warning", "c -> b": "warning"}
    assert suspects(links, {}) == [(1, 2)]
    advice = next(c.advice for c in judge(links, NAMES, {}) if c.where == "b -> c")
    assert advice.endswith("at both ends")


def test_a_host_all_of_whose_links_are_slow_is_named() -> None:
    links = mesh(3, c_a=0.1e9, c_b=0.1e9)
    checks = [check for check in judge(links, NAMES, {}) if check.status != "ok"]
    assert [check.where for check in checks] == ["c -> a", "c -> b"]
    assert all(check.advice.startswith("all links from c are slow") for check in checks)
    assert odd(mesh(3, c_a=1e9, c_b=1e9, a_c=1e9, b_c=1e9)) == dict.fromkeys(
        ["c -> a", "c -> b", "a -> c", "b -> c"], "warning"
    )


def test_links_slower_than_their_adapters_or_than_training_needs_are_warnings() -> None:
    assert odd(mesh(2), a=10e9, b=10e9) == {}
    assert odd(mesh(2, rate=1e9), a=10e9, b=10e9) == {"a -> b": "warning", "b -> a": "warning"}
    assert odd(mesh(2, rate=FAST), a=100e9, b=100e9) == {}  # one connection does not reach more
    assert odd(mesh(2, rate=50e6)) == {"a -> b": "warning", "b -> a": "warning"}


def test_a_link_that_cannot_be_measured_is_a_failure() -> None:
    links = [MeasuredLink(0, 1, error="10.0.0.2:4 cannot be reached: timed out"), *mesh(3)[1:]]
    assert odd(links) == {"a -> b": "failure"}


def test_the_better_one_of_two_measurements_counts() -> None:
    first = mesh(2, a_b=1e9)
    assert [
        link.bits_per_s for link in better(first, [MeasuredLink(0, 1, 8e9), MeasuredLink(1, 0, 2e9)])
    ] == [8e9, FAST]
    assert better(first, [MeasuredLink(0, 1, error="x")]) == first


def test_a_late_link_is_a_warning() -> None:
    links = [*mesh(3)[1:], MeasuredLink(0, 1, FAST, 5e-3)]
    assert odd(links) == {"a -> b": "warning"}


def test_clocks_are_compared_with_that_of_the_first_host_over_several_links() -> None:
    links = [
        MeasuredLink(0, 1, FAST, 1e-4, 0.2),
        MeasuredLink(1, 0, FAST, 1e-4, -0.2),
        MeasuredLink(1, 2, FAST, 1e-4, -0.199),
        MeasuredLink(2, 1, FAST, 1e-4, 0.199),
    ]
    behind, fine = clocks(links, NAMES)
    assert (behind.where, behind.status, behind.figure) == ("b", "warning", "200 ms ahead of a, ± 50 us")
    assert (fine.where, fine.status, fine.figure) == ("c", "ok", "1 ms ahead of a, ± 100 us")
