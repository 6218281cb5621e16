"""`python -m argosy.plan probe`: start the ranks that measure this host, or several hosts, and write cluster.toml.

python -m argosy.plan probe -o cluster.toml                            this host, with two ranks
python -m argosy.plan probe --ips=10.0.0.1,10.0.0.2 -o cluster.toml    the same command on both hosts

The ranks are a job of fleetrun; this process needs no torch.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import tempfile
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.engine.launch import cli

_RANKS = 2
"""On each host: of a single rank, nothing inside the host could be measured."""
MODULE = "argosy.plan.probing"


def add_to(p: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    p.add_argument(
        "--ips", metavar="A,B", default="", help="the hosts; start the same command on each of them"
    )
    p.add_argument(
        "--nodes", metavar="N", default="", help="the hosts by number, with --node-rank and --master"
    )
    p.add_argument("--node-rank", metavar="I", default="", help="the number of this host, from 0")
    p.add_argument("--master", metavar="HOST:PORT", default="", help="where the launcher of host 0 listens")
    p.add_argument("--interface", metavar="NAME", default="", help="the network interface of the collectives")
    p.add_argument("--ranks-per-host", metavar="N", type=int, default=_RANKS, help=f"default: {_RANKS}")
    p.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("cluster.toml"),
        help="default: cluster.toml",
    )
    p.add_argument("--auto", action="store_true", help="write it to the cache, too, for strategy.auto")
    p.add_argument("--measurements", metavar="FILE", type=Path, help="write what was measured, as JSON")


def run(known: argparse.Namespace) -> int:
    """Measure; the exit code of the job."""
    if known.ranks_per_host < 1 or (known.ranks_per_host == 1 and not (known.ips or known.nodes)):
        raise ConfigError(
            f"--ranks-per-host {known.ranks_per_host}; use 2 or more on one host: a single rank has no links"
        )
    options = [f"--nproc_per_node={known.ranks_per_host}", "--quiet"]
    for name in ("ips", "nodes", "node_rank", "master", "interface"):
        options += [f"--{name}={value}"] if (value := getattr(known, name)) else []
    words = [str(known.output.absolute())]
    words += ["--auto"] if known.auto else []
    if known.measurements is not None:
        words += ["--measurements", str(known.measurements.absolute())]
    with tempfile.TemporaryDirectory(prefix="argosy-probe-") as logs:
        return cli.main([*options, f"--log_dir={logs}", "-m", MODULE, *words])
