"""A job for a cluster: the launcher's options for each node, and what the engine needs to place it."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration, words


@dataclass(frozen=True)
class ClusterJob:
    """What to run, on how many nodes, and where."""

    config: Configuration
    """The options of every node's launcher, without `node_rank` and `master`; `nodes` is always set."""
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """The options of the engine that were given, by name: partition, time, hosts, image, …"""
    arguments: tuple[str, ...] = ()
    """Further arguments for the engine's own command, as the user wrote them (--engine_args)."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The variables that every node gets besides the engine's: the job's token, those of the profile."""
    setup: tuple[str, ...] = ()
    """Shell lines that every node runs first, such as `module load python`."""
    python: str = sys.executable
    directory: str = field(default_factory=os.getcwd)
    """The working directory on every node."""

    @property
    def nodes(self) -> int:
        assert self.config.nodes is not None, "the command line sets it"
        return self.config.nodes

    def node_command(self, node_rank: int | None = None, master: str | None = None) -> list[str]:
        """The command that the engine runs on a node.

        Without a rank the launcher takes the number that the engine gave its task; see `nodes.node_rank`.
        """
        config = replace(self.config, node_rank=node_rank, master=master)
        return [self.python, "-m", "argosy.engine.launch", *words(config)]


def host_list(settings: Mapping[str, str]) -> list[str]:
    """The hosts of --hosts or --hostfile; empty if neither is given."""
    if "hosts" in settings and "hostfile" in settings:
        raise ConfigError("--hosts and --hostfile are both given; leave out one of them")
    if "hostfile" in settings:
        path = settings["hostfile"]
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as e:
            raise ConfigError(f"--hostfile={path}: cannot read it ({e.strerror})") from e
        listed = [line.split("#")[0].split()[0] for line in lines if line.split("#")[0].strip()]
    else:
        listed = [host.strip() for host in settings.get("hosts", "").split(",") if host.strip()]
    if twice := sorted({host for host in listed if listed.count(host) > 1}):
        raise ConfigError(f"the host {twice[0]} is listed more than once; list each once")
    return listed
