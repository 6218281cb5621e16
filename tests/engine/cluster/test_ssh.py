"""The ssh commands of a job, and the shell command that a host runs; tests/engines/test_ssh.py has a real sshd."""

# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ssh import Ssh, remote_command
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

JOB = ClusterJob(
    Configuration("train.py", nodes=2),
    "train",
    settings={"hosts": "me@a,b"},
    environ={"ARGOSY_JOB_TOKEN": "secret", "A": "x  $HOME 'y'"},
)


def test_the_host_reads_variables_from_standard_input_then_runs_the_launcher_with_the_rest(
    tmp_path: Path,
) -> None:
    python = tmp_path / "py thon"
    python.write_text('#!/bin/sh\npwd; echo "$A"; echo "$@"; cat\n')
    python.chmod(0o755)
    (tmp_path / "the work").mkdir()
    job = replace(JOB, python=str(python), directory=str(tmp_path / "the work"), setup=("echo setup",))
    done = subprocess.run(
        ["sh", "-c", remote_command(job, 1, "a:20000")],
        input="A=x  $HOME 'y'\n\nrest",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "setup",
        "argosy-launcher-starts",
        str(tmp_path / "the work"),
        "x  $HOME 'y'",
        "-m argosy.engine.launch --nodes=2 --node_rank=1 --master=a:20000 train.py",
        "rest",
    ]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
def test_the_plan_has_a_command_per_host_without_values_of_variables(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  HostName a.example.org\n")
    plan = Ssh().plan(replace(JOB, arguments=("-F", str(config)))).splitlines()
    assert plan[0].startswith("# over standard input to each host: A, ")
    assert "ARGOSY_JOB_TOKEN" in plan[0]
    assert plan[1].startswith(f"ssh -F {config} -o BatchMode=yes")
    assert " -T -x me@a " in plan[1]
    assert "--node_rank=0 --master=a.example.org:2" in plan[1]  # where the other host reaches it
    assert "--node_rank=1 --master=a.example.org:2" in plan[2]
    assert "--end_with_stdin train.py" in plan[2]
    assert "secret" not in "".join(plan)


def test_hosts_and_the_program_are_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--on=ssh without hosts; add --hosts=a,b"):
        Ssh().plan(replace(JOB, settings={}))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no program ssh"):
        Ssh().plan(JOB)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
def test_an_invalid_configuration_of_ssh_is_explained() -> None:
    with pytest.raises(ConfigError, match="failed: .*correct --hosts, --engine_args"):
        Ssh().plan(replace(JOB, arguments=("-F", "/no/such/file")))
