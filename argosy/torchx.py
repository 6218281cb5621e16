"""Components for TorchX: `torchx run -s slurm argosy.torchx.collective --nodes 2 --script train.py`."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP006, UP035, UP045 - TorchX reads the annotations from the source, and knows only Optional and Dict
import secrets
import shlex
from pathlib import Path
from typing import Dict, Optional

from torchx.specs import AppDef

from argosy.engine import env as environment
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.torchx_app import application, random_port
from argosy.engine.launch import cli


def collective(
    *script_args: str,
    script: str,
    nodes: int = 1,
    nproc_per_node: int = 1,
    options: str = "",
    name: str = "",
    image: str = "",
    cpus: int = 0,
    memory: str = "",
    env: Optional[Dict[str, str]] = None,
    max_retries: int = 0,
    port: int = 0,
) -> AppDef:
    """Collective training: one role, a replica per node, each with a launcher that supervises its ranks.

    Args:
        script_args: arguments of the script
        script: the training script, as a path on the nodes
        nodes: replicas, each on a node
        nproc_per_node: ranks per node
        options: further options of fleetrun, as in a shell: "--paddle --log_dir=/shared/log"
        name: of the application (default: the script's name)
        image: the container image, for schedulers that use one; it contains Argosy
        cpus: cores per node (default: left to the scheduler)
        memory: memory per node, such as 16G (default: left to the scheduler)
        env: variables of all nodes; ARGOSY_JOB_TOKEN is added, random unless it is set where torchx runs
        max_retries: how often the scheduler restarts a failed job
        port: where node 0 listens for the others (default: one from 20000 to 32767, at random)
    """
    words = [f"--nodes={nodes}", f"--nproc_per_node={nproc_per_node}", *shlex.split(options)]
    settings = _settings(image, cpus, memory)
    return _application([*words, script, *script_args], name, settings, env, max_retries, port)


def parameter_server(
    *script_args: str,
    script: str,
    server_num: int,
    worker_num: int,
    worker_nodes: int = 0,
    options: str = "",
    name: str = "",
    image: str = "",
    cpus: int = 0,
    memory: str = "",
    env: Optional[Dict[str, str]] = None,
    max_retries: int = 0,
    port: int = 0,
) -> AppDef:
    """Training with parameter servers: the role server with a replica per server, and the role worker.

    Args:
        script_args: arguments of the script
        script: the training script, as a path on the nodes
        server_num: servers, each on a node
        worker_num: workers, in total
        worker_nodes: the nodes over which the workers are spread (default: one per worker)
        options: further options of fleetrun, as in a shell: "--paddle --log_dir=/shared/log"
        name: of the application (default: the script's name)
        image: the container image, for schedulers that use one; it contains Argosy
        cpus: cores per node (default: left to the scheduler)
        memory: memory per node, such as 16G (default: left to the scheduler)
        env: variables of all nodes; ARGOSY_JOB_TOKEN is added, random unless it is set where torchx runs
        max_retries: how often the scheduler restarts a failed job
        port: where node 0 listens for the others (default: one from 20000 to 32767, at random)
    """
    nodes = server_num + (worker_nodes or worker_num)
    words = [f"--nodes={nodes}", f"--server_num={server_num}", f"--worker_num={worker_num}"]
    settings = _settings(image, cpus, memory)
    words += [*shlex.split(options), script, *script_args]
    return _application(words, name, settings, env, max_retries, port)


def _settings(image: str, cpus: int, memory: str) -> dict[str, str]:
    given = {"image": image, "cpus": f"{cpus or ''}", "memory": memory}
    return {key: value for key, value in given.items() if value}


def _application(
    words: list[str],
    name: str,
    settings: dict[str, str],
    variables: Optional[Dict[str, str]],
    max_retries: int,
    port: int,
) -> AppDef:
    config = cli.parse(words)
    token = environment.variables().get("ARGOSY_JOB_TOKEN") or secrets.token_hex(16)
    job = ClusterJob(
        config,
        name or Path(config.script).stem,
        settings,
        environ={"ARGOSY_JOB_TOKEN": token, **(variables or {})},
    )
    return application(job, port or random_port(), max_retries)
