"""fleetrun --on mpi with Open MPI and with MPICH, on two hosts (network namespaces)."""

# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from tests.engines.conftest import KillAndName
from tests.engines.hosts import Hosts
from tests.engines.proof import SCRIPTS, TWO_NODES, WAIT, EngineJob, Reference, wait_until

AGENT = {
    "openmpi": "--mca plm_rsh_agent {agent}",
    "mpich": "-launcher rsh -launcher-exec {agent} -iface eth0",
}
"""What mpirun starts processes on other hosts with, in place of ssh."""
TOKEN = "6d7069206a6f6220746f6b656e"


class MpiJob:
    """A job on both hosts, by the mpirun of one implementation."""

    def __init__(self, kind: str, job: EngineJob, hosts: Hosts, programs: Path) -> None:
        mpirun = shutil.which(f"mpirun.{kind}")
        if mpirun is None:
            pytest.skip(f"{kind} is not installed; run tests/engines/install.py as root")
        programs.mkdir()
        # Not a link: MPICH searches for its other programs beside the path by which it is called.
        (programs / "mpirun").write_text(f'#!/bin/sh\nexec {mpirun} "$@"\n')
        (programs / "mpirun").chmod(0o755)
        self.kind, self.job, self.hosts = kind, job, hosts
        job.prefix = hosts.enter(0)
        job.environ["PATH"] = f"{programs}{os.pathsep}{job.environ['PATH']}"
        job.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        job.environ["ARGOSY_JOB_TOKEN"] = TOKEN
        self.options = ["--on=mpi", f"--engine_args={AGENT[kind].format(agent=hosts.agent)}"]
        self.on_hosts = [*self.options, f"--hosts={','.join(hosts.names)}"]

    def waiting(self, *words: str) -> "subprocess.Popen[str]":
        """Start a job of two ranks that wait; returns when they do."""
        process = self.job.start(*self.on_hosts, "--nproc_per_node=1", *words, WAIT)
        for rank in range(2):
            self.job.pid(f"worker.{rank}")
        return process

    def check_failed(self, process: "subprocess.Popen[str]", killed_host: str = "none") -> None:
        """The job ends with an error, and leaves nothing behind."""
        done = self.job.finish(process)
        assert done.returncode not in (0, None), done
        self.job.check_nothing_left(killed_host=killed_host)


@pytest.fixture(params=list(AGENT))
def mpi(request: pytest.FixtureRequest, job: EngineJob, hosts: Hosts, tmp_path: Path) -> MpiJob:
    return MpiJob(request.param, job, hosts, tmp_path / "bin")


@pytest.mark.parametrize("kind", AGENT)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_weights_are_those_of_fleetrun_alone(
    kind: str, name: str, job: EngineJob, hosts: Hosts, tmp_path: Path, reference: Reference
) -> None:
    mpi = MpiJob(kind, job, hosts, tmp_path / "bin")
    done = job.run(*mpi.on_hosts, *TWO_NODES[name], SCRIPTS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss:" in done.stdout  # rank 0's output
    assert {path.name for path in (tmp_path / "log").iterdir()} == {"node-0", "node-1"}
    reference.check(name, tmp_path / "weights.npz")
    job.check_nothing_left()


def test_a_killed_rank_is_named_and_the_token_is_in_no_command_line(
    mpi: MpiJob, kill_and_name: KillAndName
) -> None:
    process = mpi.waiting()
    assert mpi.job.alive()
    assert not [p for p in psutil.process_iter(["cmdline"]) if TOKEN in " ".join(p.info["cmdline"] or ())]
    wait_until(lambda: "worker 0 waits" in mpi.job.output()[0], 60.0, lambda: str(mpi.job.output()))
    pid = mpi.job.pid("worker.1")
    named = r"node 1 of 2 \(host1\):\n.*rank 1 .*SIGKILL"
    kill_and_name(mpi.job, lambda: os.kill(pid, signal.SIGKILL), named)
    mpi.check_failed(process)


def test_a_killed_node_is_named(mpi: MpiJob, kill_and_name: KillAndName) -> None:
    process = mpi.waiting()
    kill_and_name(mpi.job, lambda: mpi.hosts.kill(1), r"NodeLost: node 1 of 2 \(host1\) was lost")
    mpi.check_failed(process, killed_host="host1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_fleetrun_ends_all_processes(mpi: MpiJob, number: signal.Signals) -> None:
    process = mpi.waiting()
    process.send_signal(number)  # the shell of the prefix has replaced itself by fleetrun
    done = mpi.job.finish(process)
    assert done.returncode == (130 if number == signal.SIGINT else -9), done
    mpi.job.check_nothing_left()


def test_without_hosts_mpirun_chooses_them(mpi: MpiJob) -> None:
    process = mpi.job.start(*mpi.options, "--nproc_per_node=2", WAIT, "0.1")
    done = mpi.job.finish(process)
    assert done.returncode == 0, done
    assert "worker 0 waits" in done.stdout
    mpi.job.check_nothing_left()
