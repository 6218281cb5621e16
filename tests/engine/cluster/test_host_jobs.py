"""What mpi and ssh share: the environment of the nodes, the endpoint of node 0, setup lines."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
from dataclasses import replace

import pytest

from argosy.engine.cluster.host_jobs import after_setup, after_setup_words, master, node_environ
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.net import Endpoint

JOB = ClusterJob(
    Configuration("train.py", nodes=2), "train", environ={"ARGOSY_JOB_TOKEN": "secret", "A": "1"}
)


def test_nodes_get_the_job_s_variables_and_those_of_this_process_that_argosy_and_torch_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("ARGOSY_JOB_TOKEN", "of the shell")
    monkeypatch.setenv("EDITOR", "ed")
    environ = node_environ(JOB)
    assert environ["OMP_NUM_THREADS"] == "3"
    assert environ["ARGOSY_JOB_TOKEN"] == "secret"  # the job's
    assert environ["A"] == "1"
    assert "EDITOR" not in environ
    with pytest.raises(ConfigError, match="the variable B has more than one line"):
        node_environ(replace(JOB, environ={"B": "1\n2"}))


def test_the_port_of_node_0_follows_from_the_token() -> None:
    endpoint = Endpoint.parse(master("a", JOB))
    assert endpoint == Endpoint.parse(master("a", JOB))
    assert endpoint.host == "a"
    assert 20_000 <= endpoint.port < 30_000
    other = replace(JOB, environ={"ARGOSY_JOB_TOKEN": "another"})
    assert Endpoint.parse(master("a", other)).port != endpoint.port
    assert master("fd00::1", JOB) == f"[fd00::1]:{endpoint.port}"


def test_setup_lines_run_first_without_standard_input_and_a_failed_one_ends_it() -> None:
    def run(*setup: str) -> "subprocess.CompletedProcess[str]":
        command = after_setup(replace(JOB, setup=setup), "cat")
        return subprocess.run(
            ["sh", "-c", command], input="stdin", capture_output=True, text=True, check=False
        )

    assert run("echo one", "cat; echo two").stdout == "one\ntwo\nstdin"
    failed = run("exit 3", "echo two")
    assert (failed.returncode, failed.stdout) == (3, "")
    assert after_setup_words(JOB, ["python", "x y"]) == ["python", "x y"]
    words = after_setup_words(replace(JOB, setup=("echo one",)), ["echo", "x y"])
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "one\nx y\n"
