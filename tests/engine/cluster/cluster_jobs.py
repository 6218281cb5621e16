"""Jobs of clusters for tests, from a command line."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.launch import cli

TOKEN = "0123456789abcdef"


def cluster_job(line: str, name: str = "train", **settings: str) -> ClusterJob:
    """The job of these options of fleetrun and this script; one node unless --nodes is given."""
    words = line.split() if "--nodes" in line else ["--nodes=1", *line.split()]
    return ClusterJob(
        cli.parse(words), name, settings, environ={"ARGOSY_JOB_TOKEN": TOKEN, "PRICE": "$(HOME)$$"}
    )
