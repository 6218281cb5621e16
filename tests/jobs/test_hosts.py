"""Two hosts of the lab (benchmarks/lab), and a fleetrun in each.

host a   10.77.N.1 on "eth0" ──── switch ──── "eth0" 10.77.N.2   host b
         192.0.2.1 on "astray", up, without a peer (both hosts)
"""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest
import torch
from lab import Lab, setns
from lab.namespaces import call

from argosy.engine import collective
from tests.engine.launch.conftest import Fleetrun
from tests.jobs.test_lab import a_lab
from tests.jobs.test_launchers import SCRIPT, check_equal, train_with_given_variables
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun


class Hosts:
    """The launchers on two hosts."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab, self.fleetrun = lab, Fleetrun(directory)
        self.names, self.addresses = lab.names, lab.addresses
        for name in self.names:
            # Another interface without a peer, which has the same address on both hosts.
            call("ip", "-n", name, "link", "add", "astray", "type", "veth", "peer", "name", "nowhere")
            call("ip", "-n", name, "addr", "add", "192.0.2.1/24", "dev", "astray")
            call("ip", "-n", name, "link", "set", "astray", "up")

    def start(self, host: int, *words: str, ips: str = "", **environ: str) -> subprocess.Popen[str]:
        """fleetrun with one rank on this host."""
        directory = self.fleetrun.directory / str(host)
        directory.mkdir()
        launch = [sys.executable, "-W", "error", "-m", "argosy.distributed.launch", "--nproc_per_node=1"]
        return self.lab.start(
            host,
            [*launch, f"--ips={ips or ','.join(self.addresses)}", *words],
            cwd=directory,
            env=self.fleetrun.environ | {"OMP_NUM_THREADS": "1"} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_warm(self, ranks: ForkServer, host: int, *words: str, **environ: str) -> WarmFleetrun:
        """The same without seconds of imports."""
        directory = self.fleetrun.directory / str(host)
        directory.mkdir()
        return WarmFleetrun(
            ranks,
            *("--nproc_per_node=1", f"--ips={','.join(self.addresses)}", *words),
            cwd=directory,
            environ=environ,
            host=self.names[host],
        )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with a_lab(rate=None) as lab:
        yield Hosts(lab, tmp_path)


def listening(pid: str) -> set[str]:
    """The addresses at which the processes of this one's network namespace listen."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    addresses = [line.split()[1].partition(":")[0] for line in lines if line.split()[3] == "0A"]
    return {".".join(str(byte) for byte in reversed(bytes.fromhex(text))) for text in addresses}


def between_hosts() -> None:
    """On a rank of the fork server: move to a host, and set only the address of rank 0, as with mpirun."""
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    names, addresses = os.environ["NAMES"].split(","), os.environ["ADDRESSES"].split(",")
    for name in [n for n in os.environ if n.startswith(("PADDLE_", "ARGOSY_STORE_FD", "LOCAL_"))]:
        del os.environ[name]
    setns(names[rank])
    os.environ |= {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "2",
        "MASTER_ADDR": addresses[0],
    }
    os.environ |= {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    group = collective.connect().group("dp")
    assert group.all_reduce(torch.full((3,), rank + 1.0)).tolist() == [3.0] * 3
    assert listening("self") == {addresses[rank]}
    group.barrier()


def test_two_hosts_train_as_one_process_does(hosts: Hosts, tmp_path: Path, ranks: ForkServer) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    looked = tmp_path / "looked"
    words = (SCRIPT, f"--out={tmp_path}", f"--wait_for={looked}")
    jobs = [hosts.start_warm(ranks, host, *words) for host in (0, 1)]
    ranks.check(1, train_with_given_variables, GIVEN="{}", OUT=str(alone))
    for host in (0, 1):
        pid = hosts.fleetrun.wait_for(f"step.{host}", 60).split()[1]
        # Neither on all interfaces, nor on the one without a peer.
        assert listening(pid) == {hosts.addresses[host]}
    looked.touch()
    said = ["".join(job.communicate(timeout=60)) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], "\n".join(said)
    check_equal(tmp_path, alone)


def test_the_interface_is_the_one_of_the_route_to_rank_0(hosts: Hosts, ranks: ForkServer) -> None:
    ranks.check(
        2,
        between_hosts,
        NAMES=",".join(hosts.names),
        ADDRESSES=",".join(hosts.addresses),
        MASTER_PORT="6170",
    )


def test_a_rank_killed_on_one_host_ends_the_job_on_both(
    hosts: Hosts, tmp_path: Path, ranks: ForkServer
) -> None:
    jobs = [hosts.start_warm(ranks, host, SCRIPT, f"--out={tmp_path}", "--pause_s=2") for host in (0, 1)]
    pid = int(hosts.fleetrun.wait_for("step.1", 60).split()[1])
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    said = ["".join(job.communicate(timeout=60)) for job in jobs]
    assert time.monotonic() - began < 10, "\n".join(said)  # 5 s are promised; and a busy machine
    assert [job.returncode for job in jobs] == [1, 1], "\n".join(said)
    assert re.search(r"RankFailed: rank 1 of 2 on \S+ ended with SIGKILL", said[1]), said[1]
    assert re.search(r"RankFailed: rank 0 of 2 on \S+ ended with exit code 1", said[0]), said[0]
    assert "lost the connection to rank 1" in said[0]
    assert "  it needed rank 1, on another host: the cause is in the logs there\n" in said[0]
    assert hosts.fleetrun.all_gone(within_s=2)


def test_the_failure_of_rank_0_is_published_to_the_other_hosts_before_it_is_terminated(
    hosts: Hosts, tmp_path: Path, ranks: ForkServer
) -> None:
    failing = ("--fail=exception", "--rank=0")
    jobs = [hosts.start_warm(ranks, host, SCRIPT, f"--out={tmp_path}", *failing) for host in (0, 1)]
    said = ["".join(job.communicate(timeout=60)) for job in jobs]
    assert [job.returncode for job in jobs] == [1, 1], "\n".join(said)
    assert "  raised: ValueError: a bad batch\n" in said[0]
    assert "rank 0 failed after 3 steps: ValueError: a bad batch\n" in said[1]
    assert "  it needed rank 0, on another host: the cause is in the logs there\n" in said[1]


def test_a_host_that_is_not_in_the_list_starts_nothing(hosts: Hosts) -> None:
    job = hosts.start(0, SCRIPT, ips="10.99.0.1,10.99.0.2")
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 2, said
    assert "this host is not among them" in said
    assert hosts.addresses[0] in said
    assert hosts.fleetrun.all_gone(within_s=1)


def test_a_host_that_never_connects_is_reported(hosts: Hosts, ranks: ForkServer) -> None:
    job = hosts.start_warm(ranks, 1, SCRIPT, ARGOSY_CONNECT_TIMEOUT_S="2")
    said = "".join(job.communicate(timeout=60))
    assert job.returncode == 1, said
    assert f"CollectiveError: rank 0 at {hosts.addresses[0]}:6070 is unreachable: " in said
    assert "Connection refused; check that its process runs" in said
