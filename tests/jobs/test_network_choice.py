"""Hosts with two interfaces, and IPv6: collective and parameter-server jobs use the addresses they were given.

host 0   10.77.N.1 on eth0 ─────────────── switch ─────────────── eth0 10.77.N.2   host 1
         10.78.N.1, fd00:78:N::1 on eth1 ─ switch ─ eth1 10.78.N.2, fd00:78:N::2
"""

# SPDX-License-Identifier: Apache-2.0
import re
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest
from lab import Lab
from lab.namespaces import call

from argosy.engine.net import is_local
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.jobs.test_hosts import Hosts
from tests.jobs.test_lab import a_lab
from tests.jobs.test_launchers import SCRIPT, check_equal, train_with_given_variables
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

__all__ = ["fleetrun"]
WITH_SERVERS = str(Path(__file__).parent / "scripts" / "train_with_servers.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_local("::1"), reason="this machine has no IPv6"),
]


def add_second_interface(lab: Lab) -> tuple[list[str], list[str]]:
    """Plug an interface eth1 of each host into the switch; returns their IPv4 and IPv6 addresses."""
    switch = lab.names[0].removesuffix("host0") + "switch"
    subnet = lab.addresses[0].split(".")[2]
    ipv4 = [f"10.78.{subnet}.{host + 1}" for host in range(len(lab.names))]
    ipv6 = [str(ip_address(f"fd00:78:{subnet}::{host + 1}")) for host in range(len(lab.names))]
    for host, name in enumerate(lab.names):
        port = f"second{host}"
        call("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth1", "netns", name)
        call("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
        call("ip", "-n", name, "addr", "add", f"{ipv4[host]}/24", "dev", "eth1")
        call("ip", "-n", name, "link", "set", "eth1", "addrgenmode", "none", "up")
        call("ip", "-n", name, "-6", "addr", "add", f"{ipv6[host]}/64", "dev", "eth1", "nodad")
    return ipv4, ipv6


def listening(pid: str) -> set[str]:
    """The addresses at which the processes of this one's network namespace listen."""
    addresses = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            digits, state = line.split()[1].partition(":")[0], line.split()[3]
            words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
            if state == "0A":
                addresses.add(socket.inet_ntop(family, b"".join(words)))
    return addresses


@pytest.fixture
def two_networks(tmp_path: Path) -> Iterator[tuple[Hosts, list[str], list[str]]]:
    with a_lab(rate=None) as lab:
        ipv4, ipv6 = add_second_interface(lab)
        yield Hosts(lab, tmp_path), ipv4, ipv6


def run_on_both(
    hosts: Hosts, ranks: ForkServer, folder: Path, *words: str, **environ: str
) -> tuple[list[str], list[set[str]]]:
    """What the launchers of both hosts print, and where the processes of each host listen during training."""
    folder.mkdir()
    jobs = []
    for host in (0, 1):
        (folder / str(host)).mkdir()
        command = (*words, SCRIPT, f"--out={folder}", f"--wait_for={folder}/looked")
        jobs.append(
            WarmFleetrun(ranks, *command, cwd=folder / str(host), environ=environ, host=hosts.names[host])
        )
    addresses = [listening(Fleetrun(folder).wait_for(f"step.{host}", 60).split()[1]) for host in (0, 1)]
    (folder / "looked").touch()
    printed = ["".join(job.communicate(timeout=60)) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], "\n".join(printed)
    return printed, addresses


def test_collectives_use_the_second_interface_if_it_is_given_or_its_ipv6_addresses_are_listed(
    two_networks: tuple[Hosts, list[str], list[str]], tmp_path: Path, ranks: ForkServer
) -> None:
    hosts, ipv4, ipv6 = two_networks
    alone = tmp_path / "alone"
    alone.mkdir()
    ranks.check(1, train_with_given_variables, GIVEN="{}", OUT=str(alone))
    one_rank, listed = "--nproc_per_node=1", f"--ips={','.join(hosts.addresses)}"
    printed, addresses = run_on_both(hosts, ranks, tmp_path / "forced", one_rank, listed, "--interface=eth1")
    assert f"host 1 of 2: the others reach it at {hosts.addresses[1]} (interface eth0)" in printed[1]
    assert "; collectives use interface eth1" in printed[1]
    # The store of rank 0 is at the address of --ips.
    assert addresses == [{hosts.addresses[0], ipv4[0]}, {ipv4[1]}]
    check_equal(tmp_path / "forced", alone)
    printed, addresses = run_on_both(hosts, ranks, tmp_path / "ipv6", one_rank, f"--ips={','.join(ipv6)}")
    assert f"host 0 of 2: the others reach it at {ipv6[0]} (interface eth1)" in printed[0]
    assert addresses == [{ipv6[0]}, {ipv6[1]}]
    check_equal(tmp_path / "ipv6", alone)


def test_an_unknown_interface_is_rejected_before_anything_is_started(
    two_networks: tuple[Hosts, list[str], list[str]],
) -> None:
    hosts, ipv4, ipv6 = two_networks
    job = hosts.start(0, "--interface=eth9", SCRIPT)
    printed = job.communicate(timeout=60)[0]
    assert job.returncode == 2, printed
    assert "--interface=eth9: this host has no such interface; this host has " in printed
    assert re.search(rf"eth0 {hosts.addresses[0]}, .*eth1 {ipv4[0]}, eth1 {ipv6[0]}", printed), printed


def test_servers_and_workers_on_two_hosts_use_ipv6(
    two_networks: tuple[Hosts, list[str], list[str]], tmp_path: Path, ranks: ForkServer, fleetrun: Fleetrun
) -> None:
    hosts, _, ipv6 = two_networks
    servers = ",".join(f"[{address}]:6174" for address in ipv6)
    workers = ",".join(f"[{address}]" for address in ipv6)
    jobs = [
        WarmFleetrun(
            ranks,
            *(f"--servers={servers}", f"--workers={workers}", "--encrypt", "--interface=eth1"),
            *(f"--log_dir=log/host{host}", WITH_SERVERS),
            environ={"ARGOSY_JOB_TOKEN": "one-secret-for-both-hosts"},
            cwd=fleetrun.directory,
            host=hosts.names[host],
        )
        for host in (0, 1)
    ]
    for host, job in enumerate(jobs):
        printed = "".join(job.communicate(timeout=120))
        assert job.returncode == 0, printed
        assert f"the other hosts reach this one at {ipv6[host]} (interface eth1)" in printed
    alone = tmp_path / "alone"
    alone.mkdir()
    assert ranks.python(WITH_SERVERS, cwd=alone).returncode == 0
    check_equal(fleetrun.directory, alone)


def test_jobs_of_one_host_run_on_the_ipv6_loopback(
    fleetrun: Fleetrun, tmp_path: Path, ranks: ForkServer
) -> None:
    port = free_port()
    collective = ("--ips=::1", "--nproc_per_node=2", SCRIPT, f"--out={tmp_path}")
    with_servers = (f"--servers=[::1]:{port}", "--worker_num=2", WITH_SERVERS)
    for words in (collective, with_servers):
        job = WarmFleetrun(ranks, *words, cwd=fleetrun.directory, environ={"ARGOSY_SHM": "0"})
        printed = "".join(job.communicate(timeout=120))
        assert job.returncode == 0, printed
    assert "[::1]:" in (fleetrun.directory / "log" / "endpoints.log").read_text()


def free_port() -> int:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        return int(listener.getsockname()[1])
