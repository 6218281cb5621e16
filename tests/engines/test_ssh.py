"""fleetrun --on ssh: a real sshd on each of two hosts (network namespaces)."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from tests.engines.conftest import KillAndName
from tests.engines.hosts import Hosts
from tests.engines.proof import HOLDING, SCRIPTS, TWO_NODES, WAIT, EngineJob, Reference
from tests.engines.sshd import Sshd

TOKEN = "737368206a6f6220746f6b656e"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Sshd:
    return Sshd(tmp_path_factory.mktemp("sshd"))


@pytest.fixture
def ssh_job(job: EngineJob, hosts: Hosts, sshd: Sshd) -> Iterator[EngineJob]:
    """A job on host 0, from which ssh reaches both hosts."""
    job.prefix = hosts.enter(0)
    job.environ["ARGOSY_JOB_TOKEN"] = TOKEN
    with sshd.running(hosts):
        yield job


def options(config: str, hosts: str = "node0,node1") -> list[str]:
    """Of fleetrun: the hosts, and the configuration of ssh in place of the user's."""
    return ["--on=ssh", f"--hosts={hosts}", f"--engine_args=-F {config}"]


def waiting(job: EngineJob, sshd: Sshd) -> "subprocess.Popen[str]":
    """Start a job of two ranks that wait; returns when they do."""
    process = job.start(*options(sshd.client), "--nproc_per_node=1", WAIT)
    for rank in range(2):
        job.pid(f"worker.{rank}")
    return process


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_weights_are_those_of_fleetrun_alone(
    name: str, ssh_job: EngineJob, sshd: Sshd, tmp_path: Path, reference: Reference
) -> None:
    done = ssh_job.run(*options(sshd.client), *TWO_NODES[name], SCRIPTS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss:" in done.stdout
    assert {path.name for path in (tmp_path / "log").iterdir()} == {"node-0", "node-1"}
    reference.check(name, tmp_path / "weights.npz")
    ssh_job.check_nothing_left()


def test_a_killed_rank_is_named_and_the_token_is_in_no_command_line(
    ssh_job: EngineJob, sshd: Sshd, kill_and_name: KillAndName
) -> None:
    process = waiting(ssh_job, sshd)
    assert not [p for p in psutil.process_iter(["cmdline"]) if TOKEN in " ".join(p.info["cmdline"] or ())]
    environ = psutil.Process(ssh_job.pid("worker.1")).environ()
    assert environ["ARGOSY_JOB_TOKEN"] == TOKEN
    assert environ["OMP_NUM_THREADS"] == "1"
    pid = ssh_job.pid("worker.1")
    named = r"node 1 of 2 \(host1\):\n.*rank 1 .*SIGKILL"
    kill_and_name(ssh_job, lambda: os.kill(pid, signal.SIGKILL), named)
    assert ssh_job.finish(process).returncode == 1, ssh_job.output()
    ssh_job.check_nothing_left()


def test_a_killed_node_is_named(
    ssh_job: EngineJob, sshd: Sshd, hosts: Hosts, kill_and_name: KillAndName
) -> None:
    process = waiting(ssh_job, sshd)
    kill_and_name(ssh_job, lambda: hosts.kill(1, at_once=True), r"NodeLost: node 1 of 2 \(host1\) was lost")
    done = ssh_job.finish(process)
    assert done.returncode == 1, done
    assert "NodeLost: node 1 of 2 (host1) was lost" in done.stdout, done
    assert "host node1: the connection was lost" in done.stderr, done
    ssh_job.check_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_fleetrun_ends_all_processes(
    ssh_job: EngineJob, sshd: Sshd, number: signal.Signals
) -> None:
    process = waiting(ssh_job, sshd)
    process.send_signal(number)
    assert ssh_job.finish(process).returncode == (130 if number == signal.SIGINT else -9)
    ssh_job.check_nothing_left()


def test_sigterm_with_a_grace_period_saves_a_checkpoint_from_which_the_job_resumes_bit_equal(
    ssh_job: EngineJob, sshd: Sshd, tmp_path: Path, reference: Reference
) -> None:
    words = [*options(sshd.client), *TWO_NODES["resnet18"], "--grace=120", SCRIPTS["resnet18"]]
    resumable = ["--checkpoint=checkpoints", "--hold_until=go", *HOLDING]
    process = ssh_job.start(*words, *resumable)
    ssh_job.wait_until_held()
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    done = ssh_job.finish(process)
    assert done.returncode == 75, done.stdout + done.stderr
    assert "has saved a checkpoint" in done.stderr, done.stderr
    ssh_job.check_nothing_left()
    done = ssh_job.run(*words, *resumable)
    assert done.returncode == 0, done.stdout + done.stderr
    reference.check("resnet18", tmp_path / "weights.npz")
    ssh_job.check_nothing_left()


def test_launchers_end_when_every_process_of_fleetrun_is_killed_at_once(
    ssh_job: EngineJob, sshd: Sshd
) -> None:
    process = waiting(ssh_job, sshd)
    for child in [process, *psutil.Process(process.pid).children(recursive=True)]:
        child.kill()
    ssh_job.finish(process)
    ssh_job.check_nothing_left()


def test_failures_of_ssh_are_explained_by_host(ssh_job: EngineJob, sshd: Sshd) -> None:
    unknown = sshd.client_config("unknown", "user_key", "no_hosts")
    rejected = sshd.client_config("rejected", "other_key", "known_hosts")
    cases = {
        (
            unknown,
            "node0,node1",
        ): r"host node\d: ssh failed: Host key verification failed.*connect once by hand",
        (rejected, "node0,node1"): r"host node\d: ssh failed: .*Permission denied.*ssh-copy-id node\d",
        (sshd.client, "node0,host1"): r"host host1: ssh failed: .*Connection refused.*no sshd listens there",
        (sshd.client, "node0,nowhere"): r"host nowhere: ssh failed: .*Could not resolve",
    }
    for (config, listed), pattern in cases.items():
        done = ssh_job.run(*options(config, listed), "--nproc_per_node=1", WAIT)
        assert done.returncode == 1, done
        assert re.search(pattern, done.stderr), done.stderr
        ssh_job.check_nothing_left()


def test_the_doctor_checks_both_hosts(ssh_job: EngineJob, sshd: Sshd) -> None:
    done = ssh_job.run(*options(sshd.client), "--doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)  # and nothing else
    assert (document["hosts"], document["ranks"]) == (["host0", "host1"], 4)
    links = [check["where"] for check in document["checks"] if check["name"] == "link"]
    assert links == ["host0 -> host1", "host1 -> host0"]
    ssh_job.check_nothing_left()
