"""Slow links: found from the connections of three hosts or more."""

# SPDX-License-Identifier: Apache-2.0
import socket
import subprocess
import sys
from typing import Any

from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.links import LinkMeter
from argosy.engine.metrics.slow_links import SlowLinks

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def events(
    mbits: dict[tuple[int, int], float], records: int = 8, busy_ms: float = 400.0
) -> list[dict[str, Any]]:
    """The events of a job with these rates from host to host; rank i is on host i."""
    links, events = SlowLinks(), []
    for number in range(records):
        for (source, target), rate in mbits.items():
            sent = int(rate * 1e6 / 8 * busy_ms / 1000)
            link = {"local": HOSTS[source], "peer": HOSTS[target], "sent_bytes": sent, "busy_ms": busy_ms}
            fields = {"links": [link], "wall_s": 0.5}
            events += links.update(Record(f"rank{source}", "steps", 0.5 * number, fields))
    return events


def test_the_host_with_the_slow_link_is_named() -> None:
    (event,) = events({(0, 2): 95, (2, 1): 95, (1, 0): 940})
    assert (event["kind"], event["rank"], event["cause"]) == ("straggler", 2, "link")
    assert "95 Mbit/s" in event["text"]
    assert "940 Mbit/s" in event["text"]


def test_even_links_are_not_reported() -> None:
    assert events({(0, 2): 900, (2, 1): 800, (1, 0): 940}, records=100) == []


def test_one_slow_direction_is_not_a_slow_host() -> None:
    assert events({(0, 2): 95, (2, 1): 900, (1, 0): 940}) == []


def test_a_link_that_is_idle_most_of_the_time_is_not_reported() -> None:
    assert events({(0, 2): 95, (2, 1): 95, (1, 0): 940}, busy_ms=10.0, records=40) == []


def test_two_hosts_have_nothing_to_compare_with() -> None:
    assert events({(0, 1): 95, (1, 0): 95}) == []


def test_connections_inside_a_host_are_not_measured() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        accepted, _ = server.accept()
        with accepted:
            meter = LinkMeter()
            meter.take()
            one.sendall(bytes(1 << 16))
            assert meter.take() == []


def test_measuring_leaves_no_descriptor_open() -> None:
    code = (
        "import os\nfrom argosy.engine.metrics.links import LinkMeter\n"
        "m = LinkMeter(); m.take(); n = len(os.listdir('/proc/self/fd'))\n"
        "for _ in range(20): m.take()\nassert len(os.listdir('/proc/self/fd')) == n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
