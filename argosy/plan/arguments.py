"""The arguments of `python -m argosy.plan SCRIPT`, which the processes that it starts parse, too."""

# SPDX-License-Identifier: Apache-2.0
import argparse
from pathlib import Path

from argosy.engine.errors import ConfigError

SWITCHES = {
    "fuse_grad_size_in_MB": "bucket_mb",
    "sync_nccl_allreduce": "overlap",
    "nccl_comm_num": "communicators",
    "use_hierarchical_allreduce": "hierarchical",
    "divide_updates": "divides_updates",
    "sharding": "sharding",
    "fp16_allreduce": "wire_dtype",
    "recompute": "recompute",
}
"""Switches of the strategy that --explain knows, and the fields of a setting."""


def add_to(p: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    p.add_argument("script", metavar="SCRIPT", type=Path, help="a training script that uses fleet")
    p.add_argument("--hosts", metavar="FILE", type=Path, required=True, help="the cluster: a TOML file")
    p.add_argument(
        "--ranks-per-host", metavar="N", type=int, nargs="+", help="try these instead of the file's"
    )
    p.add_argument("--batch", metavar="N", type=int, nargs="+", help="try these examples per rank, too")
    p.add_argument("--changes-numerics", action="store_true", help="try 16-bit gradients on the wire, too")
    p.add_argument(
        "--memory-mb", metavar="MB", type=int, default=0, help="that a rank may have; default: no limit"
    )
    p.add_argument("--top", metavar="N", type=int, default=5, help="how many settings to show; default: 5")
    p.add_argument(
        "--explain", metavar="SWITCH", choices=sorted(SWITCHES), help="say what one switch would do"
    )
    p.add_argument("--examples", metavar="N", type=int, default=0, help="of an epoch, for its time and cost")
    p.add_argument(
        "--price", metavar="P", type=float, default=0.0, help="of a host for an hour, for the cost"
    )
    p.add_argument(
        "--seconds", metavar="S", type=float, default=5.0, help="to measure a batch size; default: 5"
    )
    p.add_argument("--write-times", metavar="FILE", type=Path, help="write the measured node times")
    p.add_argument("--json", action="store_true", help="print the settings as JSON")


def check(known: argparse.Namespace) -> None:
    """Raise a ConfigError for numbers out of range."""
    for name, least in (("top", 1), ("memory_mb", 0), ("examples", 0), ("price", 0), ("seconds", 0.1)):
        value = getattr(known, name)
        if value < least:
            raise ConfigError(f"--{name.replace('_', '-')} {value}; use {least} or more")
    for name in ("ranks_per_host", "batch"):
        for value in getattr(known, name) or ():
            if value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} {value}; use 1 or more")
