"""python -m argosy.plan probe: on this host with two ranks, and on two hosts of the lab."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.engine.planner.topology import read_topology
from argosy.plan.__main__ import main
from tests.jobs.test_lab import a_lab

PROBE = [sys.executable, "-m", "argosy.plan", "probe"]


def test_one_rank_on_one_host_has_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--ranks-per-host", "1"]) == 2
    assert "use 2 or more on one host" in capsys.readouterr().err


@pytest.mark.slow
def test_this_host_is_measured_and_described(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROBE, "-o", "cluster.toml"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    topology = read_topology(tmp_path / "cluster.toml")
    assert (topology.num_hosts, topology.num_ranks) == (1, 2)
    assert topology.shared_memory is not None
    assert 0.1 < topology.shared_memory.gb_per_s < 500
    assert 0 < topology.shared_memory.barrier_us < 1e5
    assert 0.01 < topology.loopback.gbit_per_s < 1000
    assert "all-reduce of" in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]


@pytest.mark.slow
def test_the_rate_of_a_shaped_link_is_found(tmp_path: Path) -> None:
    with a_lab(rate="100mbit") as lab:
        command = [*PROBE, f"--ips={','.join(lab.addresses)}", "--ranks-per-host", "1"]
        jobs = [
            lab.start(host, [*command, "-o", str(tmp_path / f"{host}.toml")], stdout=subprocess.DEVNULL)
            for host in (0, 1)
        ]
        assert [job.wait(180) for job in jobs] == [0, 0]
    topology = read_topology(tmp_path / "0.toml")
    assert topology.num_hosts == 2
    assert 0.05 < topology.links["network"].gbit_per_s < 0.12
