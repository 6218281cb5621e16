"""Roles of nodes, and the shell script of a node's task."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.cluster.node_roles import in_image, node_roles, task_script
from argosy.engine.errors import ConfigError
from tests.engine.cluster.cluster_jobs import cluster_job


def test_a_collective_job_has_one_role() -> None:
    (role,) = node_roles(cluster_job("--nodes=4 train.py"))
    assert (role.name, role.nodes, role.first_rank) == ("node", 4, 0)


@pytest.mark.parametrize(("nodes", "worker_nodes"), [("", 8), ("--nodes=6", 4), ("--nodes=3", 1)])
def test_each_server_has_a_node_and_the_workers_share_the_others(nodes: str, worker_nodes: int) -> None:
    workers, servers = node_roles(cluster_job(f"{nodes} --server_num=2 --worker_num=8 train.py"))
    assert (workers.name, workers.nodes, workers.first_rank) == ("worker", worker_nodes, 0)
    assert (servers.name, servers.nodes, servers.first_rank) == ("server", 2, worker_nodes)
    assert workers.config.nodes == servers.config.nodes == worker_nodes + 2
    assert (workers.config.node_role, servers.config.node_role) == ("worker", "server")


@pytest.mark.parametrize(("nodes", "message"), [(2, "use 3 nodes or more"), (11, "use 10 nodes or fewer")])
def test_too_few_and_too_many_nodes_are_errors(nodes: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        node_roles(cluster_job(f"--nodes={nodes} --server_num=2 --worker_num=8 train.py"))


def _run(script: str, *arguments: str) -> list[str]:
    """The arguments of the launcher, printed by `echo` in its place."""
    done = subprocess.run(
        ["bash", "-c", script, "argosy", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_script_runs_the_setup_and_then_the_launcher_with_rank_and_master(tmp_path: Path) -> None:
    job = cluster_job("--nodes=3 --server_num=1 --worker_num=2 train.py")
    config = replace(job.config, script_args=("a b", "$HOME"))
    job = replace(job, config=config, python="echo", directory=str(tmp_path), setup=("pwd", "LATER=1"))
    workers, servers = node_roles(job)
    script = task_script(job, servers, '"$1"', "host-0", 29400, is_named=True)
    common = "--nodes=3 --node_role=server --worker_num=2 --server_num=1 train.py a b $HOME"
    assert _run(script, "0") == [
        str(Path.cwd()),
        f"-m argosy.engine.launch --node_rank=2 --master=host-0:29400 {common}",
    ]
    assert f"\ncd {tmp_path}\n" in script
    script = task_script(job, workers, '"$1"', "host-0", 29400, is_named=True)
    own_name = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    assert f"--node_rank=0 --master={own_name}:29400" in _run(script, "0")[1]
    assert "--node_rank=1 --master=host-0:29400" in _run(script, "1")[1]


def test_a_setup_that_fails_ends_the_task() -> None:
    job = replace(cluster_job("train.py"), python="echo", setup=("false",))
    script = task_script(job, node_roles(job)[0], "0", "localhost", 1, is_named=False)
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 1


def test_an_image_has_its_own_python() -> None:
    job = cluster_job("train.py")
    assert job.python == sys.executable
    assert in_image(job).python == "python"
    assert in_image(replace(job, python="/opt/python")).python == "/opt/python"
