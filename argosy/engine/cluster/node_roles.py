"""Which nodes of a job run servers and which run workers, for engines that place them as separate groups; their tasks.

    collective             node 0 … N-1       one role: node
    parameter servers      node 0 … W-1       worker: all workers, spread over them
                           node W … W+S-1     server: one server on each

Workers come first: node 0 prints what the job prints, and that is the training.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import shlex
import sys
from dataclasses import dataclass, replace

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration, mode

PORT = 29400
"""Where node 0 listens, on hosts where nothing else does: a pod has its own ports."""


@dataclass(frozen=True)
class NodeRole:
    """Nodes of a job that run processes of the same kind."""

    name: str
    """node, worker or server."""
    nodes: int
    first_rank: int
    """The number of its first node in the job."""
    config: Configuration
    """The options of their launchers: `nodes` is the number of all nodes of the job."""


def node_roles(job: ClusterJob) -> tuple[NodeRole, ...]:
    """The roles of the job's nodes, in the order of the nodes.

    A parameter-server job has a node for each server, and its workers share the others. Without --nodes each worker
    has a node, too.
    """
    config = job.config
    if mode(config) == "collective":
        return (NodeRole("node", job.nodes, 0, config),)
    assert config.server_num is not None, "--servers and --nodes raise"
    assert config.worker_num is not None, "--workers and --nodes raise"
    workers = config.worker_num if job.nodes == 1 else job.nodes - config.server_num
    if workers < 1:
        raise ConfigError(
            f"--nodes={job.nodes} with --server_num={config.server_num}: each server has a node, so none is left for "
            f"the workers; use {config.server_num + 1} nodes or more, or leave out --nodes for a node per process"
        )
    if workers > config.worker_num:
        raise ConfigError(
            f"--nodes={job.nodes} with --server_num={config.server_num} and --worker_num={config.worker_num}: more "
            f"nodes than processes; use {config.server_num + config.worker_num} nodes or fewer"
        )
    config = replace(config, nodes=workers + config.server_num)
    return (
        NodeRole("worker", workers, 0, replace(config, node_role="worker")),
        NodeRole("server", job.config.server_num or 0, workers, replace(config, node_role="server")),
    )


def task_script(job: ClusterJob, role: NodeRole, rank: str, host: str, port: int, is_named: bool) -> str:
    """The shell script of a task: the job's setup, then the launcher in place of the shell, so that it gets signals.

    `rank` and `host` are shell expressions: the number of the task in its role, and the host of node 0. With
    `is_named`, node 0 takes its own name instead of `host`: in a container the name is known at once, but what other
    nodes call it may not be.
    """
    lines = ["set -e", *job.setup]
    if job.directory != os.getcwd():
        lines.append(f"cd {shlex.quote(job.directory)}")
    lines.append(f"rank=$(({role.first_rank} + {rank}))" if role.first_rank else f"rank={rank}")
    lines.append(f"host={host}")
    if is_named and role.first_rank == 0:
        lines.append('if [ "$rank" = 0 ]; then host=$(uname -n); fi')
    python, *words = replace(job, config=role.config).node_command()
    module, options = shlex.join(words[:2]), shlex.join(words[2:])
    lines.append(f'exec {shlex.quote(python)} {module} --node_rank="$rank" --master="$host:{port}" {options}')
    return "\n".join(lines) + "\n"


def in_image(job: ClusterJob) -> ClusterJob:
    """The job with the image's own `python`, unless the profile names another; this host's path means nothing there."""
    return replace(job, python="python") if job.python == sys.executable else job
