"""Step traces, topologies and servers: files that come back as they were, and errors that say what to do."""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_setup import PsSetup, read_ps_setup
from argosy.engine.planner.step_trace import (
    Collective,
    Memory,
    Node,
    ServerRequest,
    StepTrace,
    read_step_trace,
)
from argosy.engine.planner.topology import (
    HostKind,
    Interference,
    Link,
    SharedMemory,
    Straggler,
    Switch,
    Topology,
    read_topology,
)
from tests.engine.planner.steps import cluster, ps_step, step

FULL = Topology(
    (HostKind("fast net", 3, 8, 4, 2, 1.5), HostKind("slow", 1)),
    {"fast net": Link(25, 12.5, 3, 0.25), "slow": Link(0.94)},
    Link(40, 10),
    SharedMemory(12, 30, 4),
    Switch(2, 4.0, 1.5),
    Interference(0.1, 0.2),
    (Straggler(2, 1.25),),
    "lab",
)


def test_a_step_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    full = replace(
        step(1000, buckets=2, spread_ms=0.5),
        requests=(ServerRequest("r", "lookup", 10, 20, "table"),),
        periods={"merge": 4},
        memory=Memory(1000, {"parameters": 10}),
        examples=32,
        gap_ms=0.001,
    )
    full.write(tmp_path / "trace.json")
    assert read_step_trace(tmp_path / "trace.json") == full


@pytest.mark.parametrize("topology", [FULL, cluster(), replace(FULL, shared_memory=None)])
def test_a_topology_comes_back_as_it_was(tmp_path: Path, topology: Topology) -> None:
    topology.write(tmp_path / "cluster.toml")
    assert read_topology(tmp_path / "cluster.toml") == topology


def test_servers_come_back_as_they_were(tmp_path: Path) -> None:
    setup = PsSetup("geo", 3, link="ethernet", k_steps=7)
    setup.write(tmp_path / "servers.toml")
    assert read_ps_setup(tmp_path / "servers.toml") == setup


def test_a_file_written_by_hand_needs_few_lines(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('version = 1\n[[hosts]]\ncount = 16\nlink = "e"\n[links.e]\ngbit_per_s = 10\n')
    topology = read_topology(path)
    assert (topology.num_hosts, topology.num_ranks) == (16, 16)
    assert topology.with_ranks_per_host(4).num_ranks == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has version None, and this Argosy reads version 1"),
        ("version = 2", "has version 2"),
        ("version = 1\nhosts = 3", "Expected `array`, got `int`"),
        (
            "version = 1\n[[hosts]]\nlink = 'e'\ncorse = 2",
            "hosts 0 has the unknown key 'corse'; use one of link, count",
        ),
        (
            "version = 1\n[[hosts]]\nlink = 'e'\n[links]",
            r"the link 'e', which is not described \(known: none\)",
        ),
        (
            "version = 1\n[[hosts]]\nlink = 'e'\n[links.e]\ngbit_per_s = 0",
            "gbit_per_s = 0.0; use a number above 0",
        ),
        ("version = 1\n[[hosts]]\nlink = 'e'\n[links.e]\ngbit_per_s = 'x'", "Expected `float`, got `str`"),
        (
            "version = 1\n[[hosts]]\nlink = 'e'\n[links.e]\ngbit_per_s = 1\nlatency_ms = 1",
            "unknown key 'latency_ms'",
        ),
        ("version = 1\n[[hosts]\n", "is not TOML"),
    ],
)
def test_an_invalid_topology_is_rejected_with_what_would_be_right(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_topology(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "without nodes"),
        ({"version": 9}, "has version 9"),
        ({"nodes": [{"name": "n"}]}, "missing required field `ms`"),
        ({"nodes": [{"name": "n", "ms": -1}]}, "node n: ms is -1.0; use a duration of 0 or more"),
        ({"nodes": [{"name": "n", "ms": 1, "role": "sideways"}]}, "role is 'sideways'; use one of forward"),
        ({"nodes": [{"name": "n", "ms": 1, "actions": ["begin c"]}]}, 'use "start ID" or "wait ID"'),
        ({"nodes": [{"name": "n", "ms": 1, "actions": ["start d"]}]}, "names no collective or request"),
        (
            {"nodes": [{"name": "n", "ms": 1, "actions": ["wait c"]}]},
            "c is waited for, but no node starts it",
        ),
        ({"nodes": [{"name": "n", "ms": 1, "period": "merge"}]}, "unknown period 'merge'"),
        ({"colectives": []}, "unknown key 'colectives'"),
    ],
)
def test_an_invalid_step_trace_is_rejected(tmp_path: Path, change: dict[str, object], message: str) -> None:
    content = {
        "format": "argosy.step_trace",
        "version": 1,
        "nodes": [{"name": "n", "ms": 1}],
        "collectives": [{"id": "c", "kind": "all_reduce", "nbytes": 10}],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(content | change))
    with pytest.raises(ConfigError, match=message):
        read_step_trace(path)


def test_missing_and_truncated_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_topology(tmp_path / "none.toml")
    (tmp_path / "half.json").write_text('{"format": "argosy')
    with pytest.raises(ConfigError, match="is not JSON"):
        read_step_trace(tmp_path / "half.json")


def test_a_trace_with_requests_needs_servers() -> None:
    with pytest.raises(ConfigError, match="no servers are described"):
        predict(ps_step("sync", 10, 10), cluster())
    with pytest.raises(ConfigError, match="the servers have the link 'x'"):
        predict(ps_step("sync", 10, 10), cluster(), PsSetup("sync", link="x"))


def test_two_collectives_with_one_id_are_rejected() -> None:
    twice = (Collective("c", "barrier", 0), Collective("c", "barrier", 0))
    with pytest.raises(ConfigError, match="two collectives have one id"):
        StepTrace((Node("n", 1.0),), twice)
