"""`fleetrun --on ENGINE`: submit the job to a cluster, follow it; without --on, start it on this host."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.engine import env
from argosy.engine.cluster import profiles
from argosy.engine.cluster.engine import Engine
from argosy.engine.cluster.engines import ENGINES, engine
from argosy.engine.cluster.job import ClusterJob, host_list
from argosy.engine.errors import ConfigError
from argosy.engine.launch import cli
from argosy.engine.launch.configuration import Configuration

_SETTINGS = {
    "hosts": ("A,B", "hosts of the job, in the order of the nodes (mpi, ssh)"),
    "hostfile": ("FILE", "a file with one host per line instead of --hosts (mpi, ssh)"),
    "partition": ("NAME", "partition or queue (slurm, torchx)"),
    "time": ("H:M:S", "time limit (slurm, torchx)"),
    "account": ("NAME", "account that is charged (slurm)"),
    "array": ("A-B", "an array of jobs (slurm)"),
    "dependency": ("LIST", "start after other jobs, such as afterok:12 (slurm)"),
    "cpus": (
        "N",
        "cores per node that are asked for (slurm, ray, torchx, k8s; default: all, or one per process)",
    ),
    "memory": ("SIZE", "memory per node, such as 16G (slurm, ray, torchx, k8s)"),
    "address": ("HOST:PORT", "the cluster's address; default: a running one, else a local one (ray)"),
    "placement": ("STRATEGY", "STRICT_SPREAD (default) or PACK (ray)"),
    "wait": ("SECONDS", "how long to wait for free nodes, also in place of a lost one (ray; default: 60)"),
    "scheduler": ("NAME", "scheduler of TorchX (default: local_cwd)"),
    "image": ("NAME", "container image (k8s, torchx)"),
    "namespace": ("NAME", "namespace (k8s, torchx)"),
    "kind": ("NAME", "job (default), jobset or trainjob (k8s)"),
    "volume": ("CLAIM:DIR,…", "persistent volume claims and where they appear in the pods (k8s)"),
    "shm_size": (
        "SIZE",
        "limit of /dev/shm, or the log directory of an earlier run that is measured (k8s; default: 256M per process)",
    ),
    "retries": ("N", "how often a failed job is restarted (k8s; default: 0)"),
    "apply": ("yes", "create the objects with kubectl instead of printing them (k8s)"),
}
"""The options of engines: the value in --help, the text. Each engine says which it takes."""
_OWN = ("on", "attach", "dry_run", "job_name", "engine_args")


def parser() -> argparse.ArgumentParser:
    """All options of fleetrun: those of one host, and those of clusters."""
    p = cli.parser()
    g = p.add_argument_group("clusters")
    names = ", ".join(ENGINES)
    g.add_argument("--on", metavar="NAME", help=f"run on a cluster: {names}, or a name in clusters.toml")
    g.add_argument("--dry_run", action="store_true", help="print what would be submitted, and stop")
    g.add_argument(
        "--attach",
        action="store_true",
        help="follow the submitted job; `fleetrun --on slurm --attach JOBID` follows one that was submitted before",
    )
    g.add_argument("--job_name", metavar="NAME", help="default: the script's name")
    g.add_argument(
        "--engine_args", metavar="WORDS", help="further arguments for sbatch, mpirun, …, as in a shell"
    )
    for name, (value, text) in _SETTINGS.items():
        g.add_argument(f"--{name}", metavar=value, help=text)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """The command `fleetrun`; exit codes as in launch/cli.py."""
    words = sys.argv[1:] if argv is None else list(argv)
    cli.open_standard_streams()
    try:
        if words[:1] and words[0] in cli.SUBCOMMANDS:
            return cli.main(words)
        p = parser()
        options, rest = cli.split(words, p)
        known = vars(p.parse_args(options))
        if known["on"] is None:
            _check_no_cluster(known)
            return cli.main(words)
        return _run(known, rest)
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _check_no_cluster(known: dict[str, Any]) -> None:
    for name in (*_OWN, *_SETTINGS):
        if known[name]:
            raise ConfigError(
                f"--{name} is for jobs on a cluster; add --on=slurm or another engine, or leave it out"
            )


def parse(words: Sequence[str]) -> Configuration:
    """The Configuration of a command line, with or without --on."""
    p = parser()
    options, rest = cli.split(words, p)
    known = vars(p.parse_args(options))
    if known["on"] is None:
        _check_no_cluster(known)
    return cli.from_options({n: v for n, v in known.items() if n not in (*_OWN, *_SETTINGS)}, rest)


def _run(known: dict[str, Any], rest: list[str]) -> int:
    chosen = {name: known.pop(name) for name in (*_OWN, *_SETTINGS)}
    profile = profiles.profile(chosen["on"], (*_SETTINGS, "nodes", "nproc_per_node", "engine_args"))
    target = engine(profile.engine)
    from argosy.engine.cluster.follow import follow  # their log raises for an invalid ARGOSY_LOG
    from argosy.engine.launch.guard import run_guarded

    if chosen["attach"] and len(rest) == 1 and not os.path.exists(rest[0]):
        return follow(target, rest[0])
    job = _job(target, known, chosen, profile, rest)
    if chosen["dry_run"] or target.only_plans(job):
        print(target.plan(job))
        return 0
    requeue_code = None if job.config.grace_s is None else job.config.requeued_with
    if target.is_guarded:
        return run_guarded(lambda: follow(target, target.submit(job), requeue_code))
    job_id = target.submit(job)
    if target.is_detached and not chosen["attach"] and not job.config.doctor:
        print(
            f"submitted {job.name} as job {job_id}; follow it: fleetrun --on={chosen['on']} --attach {job_id}"
        )
        return 0
    return follow(target, job_id, requeue_code)


def _job(
    target: Engine, known: dict[str, Any], chosen: dict[str, Any], profile: profiles.Profile, rest: list[str]
) -> ClusterJob:
    """The job of the command line, with the defaults of the profile."""
    defaults = dict(profile.settings)
    for name in ("nodes", "nproc_per_node"):
        text = defaults.pop(name, None)
        if known[name] is None and text is not None:
            known[name] = _number(text, name)
    words = chosen["engine_args"] or defaults.pop("engine_args", "")
    settings = defaults | {name: chosen[name] for name in _SETTINGS if chosen[name] is not None}
    for name in settings:
        if name not in target.settings:
            takes = ", ".join(f"--{s}" for s in target.settings) or "no options"
            raise ConfigError(
                f"--{name}={settings[name]} is not for {target.name}, which takes {takes}; leave it out"
            )
    config = cli.from_options(known, rest)
    for name in ("node_rank", "master"):
        if getattr(config, name) is not None:
            raise ConfigError(f"--{name} and --on: the engine numbers the nodes; leave out --{name}")
    token = env.variables().get("ARGOSY_JOB_TOKEN") or secrets.token_hex(16)
    job = ClusterJob(
        config=replace(config, nodes=_num_nodes(config.nodes, settings)),
        name=chosen["job_name"] or ("doctor" if config.doctor else Path(config.script).stem),
        settings=settings,
        arguments=tuple(shlex.split(words)),
        environ={**profile.environment, "ARGOSY_JOB_TOKEN": token},
        setup=profile.setup,
    )
    return replace(job, python=profile.python or job.python, directory=profile.directory or job.directory)


def _num_nodes(nodes: int | None, settings: Mapping[str, str]) -> int:
    """--nodes, else the number of --hosts or of lines in --hostfile, else 1."""
    listed = host_list(settings)
    if nodes is not None and listed and nodes != len(listed):
        raise ConfigError(
            f"--nodes={nodes}, but {len(listed)} hosts are listed; make them agree, or leave out --nodes"
        )
    return nodes or len(listed) or 1


def _number(text: str, name: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{name} = {text!r} in clusters.toml; write a number")
    return int(text)
