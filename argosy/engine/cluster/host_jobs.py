"""What the engines that are given hosts share (mpi, ssh): the environment of the nodes, and where node 0 listens."""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import shlex

from argosy.engine import env
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint

FORWARDED = ("ARGOSY_", "FLAGS_", "GLOO_", "NCCL_", "OMP_", "MKL_", "KMP_", "PYTHONPATH")
"""Variables with these prefixes are passed from fleetrun's environment to all nodes."""
_PORTS = range(20_000, 30_000)
"""Outside of the ephemeral range, and of Argosy's default ports."""


def node_environ(job: ClusterJob) -> dict[str, str]:
    """The variables that every node gets: those of the job and its profile, and FORWARDED ones of this process."""
    forwarded = {name: value for name, value in env.variables().items() if name.startswith(FORWARDED)}
    environ = forwarded | dict(job.environ)
    for name, value in environ.items():
        if "\n" in value:
            raise ConfigError(f"the variable {name} has more than one line; leave it out or shorten it")
    return environ


def master(host: str, job: ClusterJob) -> str:
    """Where the launcher of node 0 listens: its host, and a port that follows from the job's token.

    Two jobs at the same time have different tokens, and so most likely different ports.
    """
    digest = hashlib.sha256(job.environ["ARGOSY_JOB_TOKEN"].encode()).digest()
    return str(Endpoint(host, _PORTS[int.from_bytes(digest[:4], "big") % len(_PORTS)]))


def after_setup(job: ClusterJob, command: str) -> str:
    """A shell command that runs the setup lines, then this; a setup line that fails ends it."""
    return " && ".join([*(f"{{ {line}; }} </dev/null" for line in job.setup), command])


def after_setup_words(job: ClusterJob, command: list[str]) -> list[str]:
    """The same as the words of a command; without setup lines no shell is needed."""
    if not job.setup:
        return command
    return ["/bin/sh", "-c", after_setup(job, f"exec {shlex.join(command)}")]
