"""What a job asks of a Ray cluster: the resources of each node, and how the nodes are placed."""

# SPDX-License-Identifier: Apache-2.0
import re
import shlex
from dataclasses import dataclass

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.errors import ConfigError

PLACEMENTS = ("STRICT_SPREAD", "PACK")
WAIT_S = 60.0
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class RayRequest:
    """What a job asks of the cluster."""

    nodes: int
    cpus: float
    memory: int | None
    gpus: int
    placement: str
    wait_s: float
    """How long to wait for the resources, at the start and after the loss of a node."""

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of each node, in Ray's names."""
        resources: dict[str, float] = {"CPU": self.cpus}
        if self.memory is not None:
            resources["memory"] = self.memory
        if self.gpus:
            resources["GPU"] = self.gpus
        return resources

    @property
    def text(self) -> str:
        """For messages: `2 x (CPU 4, memory 1073741824) with STRICT_SPREAD`."""
        amounts = ", ".join(f"{name} {amount:.15g}" for name, amount in self.bundle.items())
        return f"{self.nodes} x ({amounts}) with {self.placement}"


def request(job: ClusterJob, is_local: bool) -> RayRequest:
    """The settings of a job, checked. A local cluster has one Ray node, which all nodes of the job share."""
    settings, several = job.settings, job.nodes > 1
    placement = settings.get("placement", "PACK" if is_local or not several else "STRICT_SPREAD")
    if placement not in PLACEMENTS:
        raise ConfigError(f"--placement={placement}; use one of {', '.join(PLACEMENTS)}")
    if is_local and several and placement == "STRICT_SPREAD":
        raise ConfigError(
            f"--placement=STRICT_SPREAD needs {job.nodes} Ray nodes, but a local cluster has one; use PACK, or "
            "--address of a cluster"
        )
    cpus = float(number(settings.get("cpus", str(_processes(job))), "--cpus"))
    wait_s = number(settings.get("wait", f"{WAIT_S:g}"), "--wait")
    gpus = len(job.config.gpus or ())
    return RayRequest(job.nodes, cpus, memory_bytes(settings.get("memory")), gpus, placement, wait_s)


def _processes(job: ClusterJob) -> int:
    """The processes of the node that has most of them."""
    config = job.config
    if config.worker_num is not None or config.server_num is not None:
        return -(-(config.worker_num or 0) // job.nodes) + -(-(config.server_num or 0) // job.nodes)
    return config.nproc_per_node or len(config.gpus or ()) or 1


def number(text: str, name: str) -> float:
    """A number greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}={text}: use a number greater than 0")
    return value


def memory_bytes(text: str | None) -> int | None:
    """16G, 500M: bytes, in powers of 1024."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise ConfigError(f"--memory={text} is no size; write for example 16G or 500M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def plan(job: ClusterJob, asked: RayRequest) -> str:
    """The placement group, and the command of each actor."""
    lines = [f"placement group: {asked.text}"]
    for rank in range(asked.nodes):
        words = job.node_command(rank)
        command = shlex.join(
            [*words[:3], "--master=NODE0:PORT", *words[3:]]
        )  # python -m argosy.engine.launch …
        lines += [
            f"actor of node {rank}, in {job.directory}:",
            *(f"  {s}" for s in job.setup),
            f"  {command}",
        ]
    return "\n".join(lines)
