"""A job as an application of TorchX: a role per kind of node, a replica per node.

    bash -c SCRIPT argosy ${replica_id} ${rank0_env}

TorchX replaces both macros: the first with the replica's number in its role, the second with the name of the variable
in which the scheduler puts the host of the first role's first replica, node 0.
"""

# SPDX-License-Identifier: Apache-2.0
import random
from importlib import import_module
from types import ModuleType
from typing import Any

from argosy.engine import env
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.node_roles import NodeRole, in_image, node_roles, task_script
from argosy.engine.cluster.sizes import mebibytes, whole_number
from argosy.engine.errors import ConfigError

_PORTS = range(20_000, 32_768)
_RANK0_HOST = '"${!2:-localhost}"'
"""The value of the variable that the second argument names; a job of one node has none on some schedulers."""


def specs() -> ModuleType:
    """TorchX's module of definitions; raises ConfigError if it is not installed."""
    try:
        return import_module("torchx.specs")
    except ModuleNotFoundError as e:
        raise ConfigError(f"TorchX is not installed ({e}); run pip install 'argosy[torchx]'") from e


def random_port() -> int:
    """Where node 0 may listen on another host: below the ephemeral ports of Linux, and random, as jobs share hosts."""
    return random.SystemRandom().choice(_PORTS)


def application(job: ClusterJob, port: int, max_retries: int = 0) -> Any:
    """The torchx.specs.AppDef of the job; node 0 listens at `port`."""
    roles = [_role(job, role, port, max_retries) for role in node_roles(job)]
    return specs().AppDef(name=job.name, roles=roles)


def _role(job: ClusterJob, role: NodeRole, port: int, max_retries: int) -> Any:
    torchx, image = specs(), job.settings.get("image", "")
    script = task_script(in_image(job) if image else job, role, '"$1"', _RANK0_HOST, port, bool(image))
    return torchx.Role(
        name=role.name,
        image=image,
        entrypoint="bash",
        # A dollar of the script must not look like one of TorchX's macros.
        args=["-c", _escaped(script), "argosy", torchx.macros.replica_id, torchx.macros.rank0_env],
        env=_environment(job),
        num_replicas=role.nodes,
        max_retries=max_retries,
        resource=_resource(job),
        port_map={"launcher": port},
    )


def _environment(job: ClusterJob) -> dict[str, str]:
    """The variables of a role, without those that its tasks have from the submitter.

    Without an image, `local_cwd` and Slurm pass on the submitter's environment, and a token that is set there is in no
    batch script, command line or log.
    """
    inherited = {} if "image" in job.settings else env.variables()
    return {name: _escaped(value) for name, value in job.environ.items() if inherited.get(name) != value}


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def _resource(job: ClusterJob) -> Any:
    """What a node asks for; -1 leaves it to the scheduler."""
    cpus, memory = job.settings.get("cpus"), job.settings.get("memory")
    return specs().Resource(
        cpu=whole_number(cpus, "cpus") if cpus else -1,
        memMB=mebibytes(memory, "memory") if memory else -1,
        gpu=len(job.config.gpus or ()),
    )
