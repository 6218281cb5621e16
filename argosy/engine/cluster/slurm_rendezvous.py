"""Where the launchers of a Slurm job connect: `python -m argosy.engine.cluster.slurm_rendezvous`, in its batch script.

Prints HOST:PORT for --master: the first node of the job, and a port that is free there, since Slurm runs the batch
script on this node.
"""

# SPDX-License-Identifier: Apache-2.0
import socket
import sys
from collections.abc import Mapping

from argosy.engine import env
from argosy.engine.cluster import slurm_status
from argosy.engine.errors import ConfigError
from argosy.engine.launch.ports import stable_ports
from argosy.engine.net import Endpoint, first_host


def endpoint(environ: Mapping[str, str]) -> Endpoint:
    """The first host of the job's node list, and a free port of this host.

    Slurm's names of nodes need not be names of hosts: one that is not resolved is replaced by its address in Slurm.
    """
    if not (nodelist := environ.get("SLURM_JOB_NODELIST", "")):
        raise ConfigError("SLURM_JOB_NODELIST is not set; this is for the batch script of a Slurm job")
    host = first_host(nodelist)
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        host = slurm_status.node_address(host)
    return Endpoint(host, stable_ports("", 1)[0])


if __name__ == "__main__":
    try:
        print(endpoint(env.variables()))
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        sys.exit(2)
