"""fleetrun --doctor as a job: on this host, on two hosts of the lab with a slow link, with a host that is missing."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest
from lab.namespaces import call

from argosy.engine.net import is_local
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.jobs.test_hosts import Hosts
from tests.jobs.test_lab import a_lab
from tests.jobs.test_network_choice import add_second_interface
from tests.ranks import ForkServer

__all__ = ["fleetrun"]
HOST_CHECKS = {
    *(
        "python",
        "argosy",
        "torch",
        "compiler",
        "kernels",
        "cores",
        "hyper-threads",
        "threads of ranks",
        "load",
    ),
    *("memory", "/dev/shm", "ulimit -n", "ulimit -u", "ulimit -l", "name resolution", "interface", "ports"),
    *("ephemeral ports", "disk space", "disk write", "disk fsync", "other jobs", "left processes"),
    *("left shared memory", "left directories"),
}
TOGETHER = {"product in float32", "product in bf16", "shared-memory all-reduce", "gloo all-reduce"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with a_lab(rate="1gbit") as lab:
        yield Hosts(lab, tmp_path)


def of(document: dict[str, Any], name: str) -> dict[str, str]:
    """Where, and with which status."""
    return {check["where"]: check["status"] for check in document["checks"] if check["name"] == name}


@pytest.mark.slow
def test_one_host_is_checked_with_two_ranks_and_reported_as_json(fleetrun: Fleetrun) -> None:
    (fleetrun.directory / "log").mkdir()
    (fleetrun.directory / "log" / "workerlog.0").write_text("of a job")
    done = fleetrun.run("--doctor", "--json")
    document = json.loads(done.stdout)  # and nothing else
    assert done.returncode == 0, done.stdout
    assert {check["name"] for check in document["checks"]} == HOST_CHECKS | TOGETHER
    assert document["ranks"] == 2
    assert set(of(document, "product in float32")) == {"rank 0", "rank 1"}
    assert (fleetrun.directory / "log" / "workerlog.0").read_text() == "of a job"


@pytest.mark.slow
def test_the_throttled_link_of_two_hosts_is_named(hosts: Hosts, ranks: ForkServer) -> None:
    slow = ("tbf", "rate", "50mbit", "burst", "32kbit", "latency", "400ms")
    call("tc", "-n", hosts.names[1], "qdisc", "replace", "dev", "eth0", "root", *slow)
    jobs = [hosts.start_warm(ranks, host, "--doctor", "--json") for host in (0, 1)]
    said = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [1, 1], said
    documents = [json.loads(out) for out, _ in said]
    assert documents[0]["checks"] == documents[1]["checks"]
    first, second = hosts.addresses
    assert of(documents[0], "link") == {f"{first} -> {second}": "ok", f"{second} -> {first}": "failure"}
    assert (
        set(of(documents[0], "memory"))
        == set(of(documents[0], "shared-memory all-reduce"))
        == {first, second}
    )
    assert of(documents[0], "clock") == {second: "ok"}
    assert of(documents[0], "interface") == {first: "ok", second: "ok"}
    for _, errors in said:
        assert "RankFailed" not in errors  # the report has said it
        assert "ABORT" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["--interface", "IPv6"])
def test_the_interface_of_the_collectives_is_measured(hosts: Hosts, ranks: ForkServer, kind: str) -> None:
    if not is_local("::1"):
        pytest.skip("this machine has no IPv6")
    ipv4, ipv6 = add_second_interface(hosts.lab)
    words = ["--interface=eth1"] if kind == "--interface" else [f"--ips={','.join(ipv6)}"]
    jobs = [hosts.start_warm(ranks, host, "--doctor", "--json", *words) for host in (0, 1)]
    said = [job.communicate(timeout=120) for job in jobs]
    document = json.loads(said[0][0])
    figures = [check["figure"] for check in document["checks"] if check["name"] == "interface"]
    addresses = ipv4 if kind == "--interface" else ipv6
    assert [figure.split(",")[0] for figure in figures] == [f"eth1 {address}" for address in addresses]
    assert len(of(document, "link")) == 2
    assert "failure" not in of(document, "gloo all-reduce").values()


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_named(hosts: Hosts, ranks: ForkServer) -> None:
    for host, other in ((0, 1), (1, 0)):
        job = hosts.start_warm(ranks, host, "--doctor", ARGOSY_CONNECT_TIMEOUT_S="2")
        out, errors = job.communicate(timeout=120)
        assert job.returncode == 1, out + errors
        lines = [line.split() for line in out.splitlines() if line.startswith("failure")]
        assert [line[1:3] for line in lines] == [["rendezvous", hosts.addresses[other]]], out
        assert "memory" in out  # its own checks are there
        assert "RankFailed" not in errors


@pytest.mark.slow
def test_launchers_that_find_each_other_check_their_nodes(
    fleetrun: Fleetrun, ranks: ForkServer, tmp_path: Path
) -> None:
    from argosy.engine.launch.ports import free_ports
    from tests.warm_fleetrun import WarmFleetrun

    master = f"--master=127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    words = ("--doctor", "--json", "--nodes=2", "--nproc_per_node=1", master)
    jobs = [WarmFleetrun(ranks, *words, f"--node_rank={node}", cwd=tmp_path) for node in (0, 1)]
    said = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    assert json.loads(said[0][0])["ranks"] == 2
    assert said[1][0] == ""


def test_a_failure_does_not_hide_the_other_checks(ranks: ForkServer, tmp_path: Path) -> None:
    done = ranks.python("-m", "argosy.doctor", str(tmp_path / "none"), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"{tmp_path}/none: No such file or directory" in done.stdout
    assert "product in float32" in done.stdout
    assert "1 failure; 1 host, 1 rank" in done.stdout
    assert not os.listdir(tmp_path)
