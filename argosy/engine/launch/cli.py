"""`fleetrun` and `python -m argosy.distributed.launch`: arguments into a Configuration, errors into exit codes."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from argosy.engine.env import TIMELINE_STEPS
from argosy.engine.errors import ConfigError, nearest
from argosy.engine.launch.configuration import (
    DEAD_WORKER,
    DOCTOR,
    LOG_LEVELS,
    MODES,
    NODE_ROLES,
    SERVER_DURABILITY,
    Configuration,
)
from argosy.engine.version import VERSION

_DOCTOR_TIMEOUT_S = 30.0
"""How long the doctor's ranks wait for each other in a collective."""
_EXAMPLES = """
examples:
  fleetrun --gpus=0,1 train.py --lr 0.1             two ranks, one for each GPU (on the CPU if there is none)
  fleetrun --nproc_per_node=4 train.py              four ranks on this host
  fleetrun --ips=10.0.0.1,10.0.0.2 --gpus=0,1 train.py      on both hosts: four ranks
  fleetrun --nproc_per_node=2 --paddle train.py     a script that imports paddle
  fleetrun --nproc_per_node=2 --max_restarts=3 -m mypackage.train
  fleetrun --server_num=2 --worker_num=4 train.py   two parameter servers and four workers on this host
  fleetrun --servers=10.0.0.1:6174 --workers=10.0.0.1,10.0.0.2 train.py      on both hosts: each starts its processes
  fleetrun status [DIR], fleetrun top [DIR]         show a job of this host: once, or live; DIR: its --log_dir
  fleetrun --doctor --ips=10.0.0.1,10.0.0.2         on both hosts: check them, and the network between them

All arguments after the script are passed to the script. --like-this and --like_this are the same.
Exit code: 0 all ranks or workers succeeded, 1 one failed, 2 invalid arguments, 130 Ctrl-C, 143 SIGTERM; with --grace:
75 SIGTERM, and a checkpoint was saved.
"""


SUBCOMMANDS = ("status", "top")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see fleetrun --help")


def parser() -> argparse.ArgumentParser:
    """All options of fleetrun, without the script."""
    p = _Parser(
        prog="fleetrun",
        usage="fleetrun [options] script.py [arguments of the script]\n"
        "       fleetrun [options] -m module [arguments of the module]\n"
        "       fleetrun --doctor [options] [directory of checkpoints]",
        description="Run a script on several ranks of this host; if one fails, terminate all.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--version", action="version", version=f"fleetrun {VERSION}")
    _add_ranks(p.add_argument_group("ranks and devices"))
    _add_hosts(p.add_argument_group("several hosts"))
    _add_script(p.add_argument_group("the script"))
    _add_logs(p.add_argument_group("logs and failures"))
    _add_timeline(p.add_argument_group("profiling"))
    _add_watching(p.add_argument_group("watching a job"))
    _add_ps(p.add_argument_group("parameter servers"))
    _add_doctor(p.add_argument_group("health of the hosts"))
    return p


def _add_ranks(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--nproc_per_node", type=int, metavar="N", help="ranks on this host (default: one per GPU, else 1)"
    )
    g.add_argument(
        "--gpus", "--selected_gpus", "--devices", type=_list, metavar="0,1", help="devices of this host"
    )
    g.add_argument("--xpus", "--selected_xpus", metavar="0,1", help="raises: XPUs are not supported")
    g.add_argument("--run_mode", choices=MODES, help="instead of deriving it from the other options")


def _add_hosts(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--ips", "--cluster_node_ips", type=_list, metavar="A,B", help="all hosts (default: 127.0.0.1)"
    )
    g.add_argument(
        "--host",
        "--node_ip",
        metavar="A",
        help="which of the hosts this one is, if it cannot be detected",
    )
    g.add_argument("--use_paddlecloud", action="store_true", help="raises: use --ips and --host")
    g.add_argument("--nodes", "--nnodes", type=int, metavar="N", help="launchers of this job, one per node")
    g.add_argument(
        "--node_rank",
        type=int,
        metavar="I",
        help="which of the nodes this is, from 0 (default: as Slurm, MPI or Kubernetes numbers this task)",
    )
    g.add_argument(
        "--master", metavar="HOST:PORT", help="where the launcher of node 0 listens for the others"
    )
    g.add_argument(
        "--join_timeout",
        type=float,
        metavar="S",
        help="seconds that the launchers wait for each other at the start (default: 300), as while images are pulled",
    )
    g.add_argument(
        "--interface",
        metavar="NAME",
        help="network interface that the other hosts reach (default: the one of the route to them)",
    )
    g.add_argument(
        "--end_with_stdin",
        action="store_true",
        help="end the job, as SIGHUP does, when standard input reaches its end (fleetrun --on ssh uses it)",
    )
    g.add_argument(
        "--node_role",
        choices=NODE_ROLES,
        help="this node runs only servers, or only workers (default: both are spread over all nodes)",
    )
    port = "port of each host's first rank (default: FLAGS_START_PORT, else free ports on one host, 6070 on several)"
    g.add_argument("--start_port", "--started_port", type=int, metavar="P", help=port)


def _add_script(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "-m", "--module", action="store_true", help="the script is a module's name, as in python -m"
    )
    g.add_argument("--paddle", action="store_true", help="`import paddle` in the script finds Argosy")
    g.add_argument(
        "--autotune",
        action="store_true",
        help="choose how gradients travel while the job runs: strategy.auto",
    )


def _add_logs(g: argparse._ArgumentGroup) -> None:
    g.add_argument("--log_dir", default=Configuration.log_dir, metavar="DIR", help="default: log")
    g.add_argument("--log_level", choices=LOG_LEVELS, help="of the ranks (ARGOSY_LOG)")
    g.add_argument(
        "--tee",
        action="store_true",
        help="print the output of all ranks, that of the others as `[rank 1] ...`",
    )
    g.add_argument(
        "--quiet", action="store_true", help="print only the script's output, warnings and failures"
    )
    g.add_argument(
        "--print_config", choices=("True", "False"), default="True", help="False is the same as --quiet"
    )
    g.add_argument(
        "--max_restarts",
        type=int,
        default=0,
        metavar="N",
        help="restart a failed job, or a failed server or worker, at most N times",
    )
    g.add_argument(
        "--grace",
        type=float,
        metavar="S",
        help="after SIGTERM (preemption): seconds to save a checkpoint and exit with the requeue code",
    )
    g.add_argument(
        "--requeue_code", type=int, metavar="N", help="exit code after such a checkpoint (default: 75)"
    )
    g.add_argument(
        "--timeout", type=float, metavar="S", help="seconds that ranks wait for each other in a collective"
    )


def _add_timeline(g: argparse._ArgumentGroup) -> None:
    g.add_argument("--timeline", metavar="DIR", help="record a timeline: see python -m argosy.timeline DIR")
    g.add_argument("--timeline_steps", metavar="A-B", help=f"of these steps (default: {TIMELINE_STEPS})")


def _add_watching(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--dashboard",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="serve a page that shows the job (default: port 8640, or a free one if it is taken)",
    )
    g.add_argument("--metrics_port", type=int, metavar="P", help="serve metrics to Prometheus at this port")
    for kind, what in (("dashboard", "of the page"), ("metrics", "of the metrics")):
        text = f"address {what} (default: 127.0.0.1); others need ARGOSY_JOB_TOKEN"
        default = getattr(Configuration, f"{kind}_host")
        g.add_argument(f"--{kind}_host", default=default, metavar="A", help=text)
    g.add_argument("--tensorboard", metavar="DIR", help="write watched values and speed for TensorBoard")


def _add_ps(g: argparse._ArgumentGroup) -> None:
    for kind, note in (("server", ""), ("worker", "; without a port: 6170 + servers + i")):
        endpoints = f"endpoints of all {kind}s, on all hosts{note}"
        g.add_argument(f"--{kind}_num", type=int, metavar="N", help=f"{kind}s on this host")
        g.add_argument(f"--{kind}s", type=_list, default=(), metavar="HOST:PORT,…", help=endpoints)
    g.add_argument(
        "--heter_worker_num", type=int, metavar="N", help="raises: heter workers are not supported"
    )
    g.add_argument("--heter_workers", type=_list, default=(), metavar="HOST:PORT,…", help="the same")
    g.add_argument(
        "--dead_worker",
        choices=DEAD_WORKER,
        help="a worker that failed and has no restart left: end the job (default), or drop it and continue",
    )
    g.add_argument("--server_state", metavar="DIR", help="servers store their state there and resume from it")
    g.add_argument(
        "--server_durability",
        choices=SERVER_DURABILITY,
        help="what a server acknowledges survives its kill (log, default), a power failure too (disk), or is written "
        "once a minute under asynchronous training (snapshot)",
    )
    g.add_argument("--encrypt", action="store_true", help="encrypt the traffic between workers and servers")
    g.add_argument(
        "--http_port", type=int, metavar="P", help="of the first server: PADDLE_GLOO_HTTP_ENDPOINT"
    )


def _add_doctor(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--doctor",
        action="store_true",
        help="check hosts, links, collectives and the disk instead of running a script; exit code 1 on a failure",
    )
    g.add_argument("--json", action="store_true", help="with --doctor: print one JSON document")


def _list(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def parse(argv: Sequence[str]) -> Configuration:
    """Parse the command line into a Configuration."""
    p = parser()
    options, rest = split(argv, p)
    return from_options(vars(p.parse_args(options)), rest)


def from_options(known: dict[str, Any], rest: Sequence[str]) -> Configuration:
    """The Configuration of the parsed options, and the script with its arguments."""
    if known["doctor"]:
        rest = _doctor_options(known, rest)
    elif known["json"]:
        raise ConfigError("--json is for --doctor; add it, or leave out --json")
    if not rest:
        raise ConfigError("no script is given; write fleetrun [options] script.py, see fleetrun --help")
    for option in ("timeout", "grace", "join_timeout"):
        known[f"{option}_s"] = known.pop(option)
    known["quiet"] |= known.pop("print_config") == "False"
    if known.pop("use_paddlecloud"):
        raise ConfigError(
            "--use_paddlecloud: the variables of PaddleCloud are not read; write --ips=$PADDLE_TRAINERS --host=$POD_IP"
        )
    return Configuration(rest[0], tuple(rest[1:]), **known)


def _doctor_options(known: dict[str, Any], rest: Sequence[str]) -> list[str]:
    """Set the options of the doctor's job; returns its module with the directory of checkpoints, if it is given."""
    if len(rest) > 1 or (rest and os.path.isfile(rest[0])) or known["module"]:
        raise ConfigError(
            f"--doctor runs no script, and {' '.join(rest) or '-m'} is given; leave it out, or give the directory of "
            "checkpoints"
        )
    if known["max_restarts"]:
        raise ConfigError(f"--doctor and --max_restarts={known['max_restarts']}: leave out one of them")
    known |= {"module": True, "quiet": True, "run_mode": known["run_mode"] or "collective"}
    if known["log_dir"] == Configuration.log_dir:
        known["log_dir"] = os.path.join(Configuration.log_dir, "doctor")  # the logs of jobs are not rotated
    if known["timeout"] is None:
        known["timeout"] = _DOCTOR_TIMEOUT_S
    return [DOCTOR, *rest]


def split(argv: Sequence[str], p: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The options of fleetrun, spelt with underscores, and the script with its arguments."""
    known = {s: a for a in p._actions for s in a.option_strings}
    options: list[str] = []
    args = list(argv)
    while args and args[0].startswith("-"):
        name, equals, value = args.pop(0).partition("=")
        if name == "--":
            break
        name = "--" + name[2:].replace("-", "_") if name.startswith("--") else name
        if name not in known:
            raise ConfigError(
                f"unknown option {name}{nearest(name, known, lists=False)}; see fleetrun --help"
            )
        options.append(name + equals + value)
        is_optional = known[name].nargs == "?"
        if not equals and known[name].nargs != 0 and args and (not is_optional or args[0].isdecimal()):
            options.append(args.pop(0))
    return options, args


def main(argv: Sequence[str] | None = None) -> int:
    """0: the job succeeded. 1: a rank failed. 2: invalid arguments. 128 + n: terminated by signal n.

    The requeue code: preempted, after a checkpoint was saved.
    """
    open_standard_streams()
    try:
        words = sys.argv[1:] if argv is None else argv
        if (command := subcommand(words)) is not None:
            return command
        config = parse(words)
        # Imported here: --help is fast, and an invalid ARGOSY_LOG is caught below.
        from argosy.engine.launch.supervise import run

        return run(config)
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def subcommand(words: Sequence[str]) -> int | None:
    """Run `fleetrun status` or `fleetrun top`; returns the exit code, None if it is none of them."""
    if not words or words[0] not in SUBCOMMANDS:
        return None
    name = words[0]
    if os.path.isfile(name):
        raise ConfigError(
            f"{name!r} is a command of fleetrun and a file here; write ./{name} to run it, or change the directory"
        )
    from argosy.engine.launch import status

    return status.main(name, words[1:])


def open_standard_streams() -> None:
    """Open /dev/null as stdin, stdout or stderr if one is closed, else the next opened file gets its descriptor."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
