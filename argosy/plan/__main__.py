"""`python -m argosy.plan`: predict the step of a job on a cluster.

SCRIPT --hosts cluster.toml              the best settings of this script on the cluster
simulate TRACE --hosts cluster.toml      the step of one rank's trace on this cluster
probe -o cluster.toml                    measure this host, or the hosts of --ips
servers SCRIPT --hosts cluster.toml      how many parameter servers, and which mode
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import REPEATS, simulate_step
from argosy.engine.planner.ps_setup import read_ps_setup
from argosy.engine.planner.timeline_file import write_timeline
from argosy.engine.planner.topology import read_topology
from argosy.plan import arguments, probe, ps_choices, script
from argosy.plan.recorded import read_trace
from argosy.plan.report import show


def parser() -> argparse.ArgumentParser:
    """The arguments of `python -m argosy.plan`."""
    p = argparse.ArgumentParser(prog="python -m argosy.plan", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    simulate = commands.add_parser("simulate", help="predict the step of a recorded job on a cluster")
    simulate.add_argument(
        "trace",
        metavar="TRACE",
        type=Path,
        help="a directory of fleetrun --timeline, log/metrics/rank0.profile.json, or a step trace",
    )
    simulate.add_argument(
        "--hosts", metavar="FILE", type=Path, required=True, help="the cluster: a TOML file"
    )
    simulate.add_argument("--ranks-per-host", metavar="N", type=int, help="instead of those in the file")
    simulate.add_argument("--servers", metavar="FILE", type=Path, help="parameter servers: a TOML file")
    simulate.add_argument(
        "--repeats", metavar="N", type=int, default=REPEATS, help="draws of the nodes' spread, for the band"
    )
    simulate.add_argument("--seed", metavar="N", type=int, default=0, help="of the first draw")
    simulate.add_argument(
        "--timeline", metavar="DIR", type=Path, help="write the predicted step as a timeline"
    )
    simulate.add_argument("--json", action="store_true", help="print the prediction as JSON")
    simulate.set_defaults(run=_simulate)
    choose = commands.add_parser(
        "choose",
        help="measure a script, and choose its settings for a cluster; `choose` may be left out",
        epilog="Arguments that are not listed, and all after --, are the script's.",
    )
    arguments.add_to(choose)
    choose.set_defaults(run=_choose)
    measured = commands.add_parser("probe", help="measure hosts and their links, and write cluster.toml")
    probe.add_to(measured)
    measured.set_defaults(run=probe.run)
    servers = commands.add_parser(
        "servers",
        help="measure a script with parameter servers, and choose their number and the mode",
        epilog="Arguments that are not listed, and all after --, are the script's.",
    )
    ps_choices.add_to(servers)
    servers.set_defaults(run=lambda known: ps_choices.run(known, known.rest))
    return p


def _choose(known: argparse.Namespace) -> int:
    arguments.check(known)
    topology = read_topology(known.hosts)
    if known.ranks_per_host:
        topology = topology.with_ranks_per_host(max(known.ranks_per_host))
    return script.run(known.script, known.words, topology)


def _simulate(known: argparse.Namespace) -> int:
    topology = read_topology(known.hosts)
    if known.ranks_per_host is not None:
        topology = topology.with_ranks_per_host(known.ranks_per_host)
    if known.repeats < 1:
        raise ConfigError(f"--repeats {known.repeats}; use 1 or more")
    servers = None if known.servers is None else read_ps_setup(known.servers)
    predicted = simulate_step(read_trace(known.trace), topology, servers, known.repeats, known.seed)
    if known.timeline is not None:
        write_timeline(predicted, known.timeline)
    if known.json:
        print(json.dumps(predicted.prediction.to_data(), indent=1))
    else:
        show(predicted.prediction)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0, or 2 if the arguments or files are invalid."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].endswith(".py"):
        words.insert(0, "choose")
    known, rest = parser().parse_known_args(words)
    if rest and known.command not in ("choose", "servers"):
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    known.words, known.rest = words[1:], [word for word in rest if word != "--"]
    try:
        code: int = known.run(known)
    except (ConfigError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
