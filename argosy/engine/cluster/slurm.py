"""Jobs on Slurm: `fleetrun --on slurm` submits a batch script with sbatch; the script starts one launcher per node.

    sbatch ──▶ batch script, on the first node ──▶ srun ──▶ launcher on every node ──▶ ranks, servers, workers
                    │ exit code 0 or 1: the end
                    └ requeue code (--grace): a checkpoint was saved ──▶ scontrol requeue ──▶ the script again

With --grace, Slurm signals the launchers before the time limit; before a preemption it does so anyway. srun must not be
signalled by the script: on SIGTERM it kills the launchers.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from argosy.engine import env
from argosy.engine.cluster import slurm_status
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.slurm_follow import POLL_S, Follower
from argosy.engine.cluster.slurm_status import JobStatus
from argosy.engine.errors import ConfigError

_OPTIONS = {
    "partition": "partition",
    "time": "time",
    "account": "account",
    "array": "array",
    "dependency": "dependency",
    "memory": "mem",
}
"""The option of fleetrun, that of sbatch."""
_MARGIN_S = 30
"""Before the time limit, in addition to the grace period: for the exit and the requeue."""
_LATE_NODE_S = 10
"""The launchers exit together; srun kills one that has not exited so long after the first."""
_KEPT = ("SLURM_CONF",)
"""Inside of a Slurm job, the other variables describe that job; sbatch must not pass them on."""


class Slurm(Engine):
    """One allocation per job, with one task per node."""

    name: ClassVar[str] = "slurm"
    settings: ClassVar[tuple[str, ...]] = (*_OPTIONS, "cpus")
    is_detached = True

    def __init__(self) -> None:
        self._ended: dict[str, JobStatus] = {}
        """The last status of jobs that were followed to their end."""

    def plan(self, job: ClusterJob) -> str:
        interpreter, rest = script(job).split("\n", 1)
        return f"{interpreter}\n# submitted by: {shlex.join(_sbatch(job))}\n{rest}"

    def submit(self, job: ClusterJob) -> str:
        log_dir = Path(job.directory, job.config.log_dir)
        try:
            log_dir.mkdir(parents=True, exist_ok=True)  # Slurm does not, and the job would fail without a log
        except OSError as e:
            raise ConfigError(f"--log_dir={log_dir}: cannot create it ({e.strerror}); choose another") from e
        inherited = {n: v for n, v in env.variables().items() if not n.startswith("SLURM_") or n in _KEPT}
        printed = slurm_status.run(*_sbatch(job), text=script(job), environ={**inherited, **job.environ})
        return printed.strip().partition(";")[0]  # JOBID;CLUSTER

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return slurm_status.hosts(slurm_status.status(job_id).nodelist)

    def logs(self, job_id: str) -> Iterator[str]:
        follower = Follower(job_id)
        yield from follower.lines()
        self._ended[job_id] = follower.status

    def wait(self, job_id: str) -> Outcome:
        if job_id not in self._ended:
            for _ in self.logs(job_id):
                pass
        status = self._ended[job_id]
        exit_signal = f", signal {status.exit_signal}" if status.exit_signal else ""
        reason = f"{status.state}, exit code {status.exit_code}{exit_signal}"
        if status.nodelist:
            reason += f" on {status.nodelist}"
        failed = slurm_status.unhealthy_nodes(status.nodelist) if status.code else []
        return Outcome(status.code, "; ".join([reason, *failed]))

    def cancel(self, job_id: str) -> None:
        if all(status.has_ended for status in slurm_status.statuses(job_id)):
            return
        slurm_status.run("scancel", job_id)
        while not all(status.has_ended for status in slurm_status.statuses(job_id)):
            time.sleep(POLL_S)


def script(job: ClusterJob) -> str:
    """The batch script. It contains no value of the environment: sbatch passes that on, with the job's token."""
    config = job.config
    directives = {
        "job-name": job.name,
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
        "chdir": job.directory,
        "output": _log(job),
        "open-mode": "append",
        **{_OPTIONS[name]: job.settings[name] for name in _OPTIONS if name in job.settings},
    }
    if cpus := _cpus(job):
        directives["cpus-per-task"] = cpus
    lines = ["#!/bin/bash", *(f"#SBATCH --{name}={shlex.quote(text)}" for name, text in directives.items())]
    if config.grace_s is not None:
        lines += ["#SBATCH --requeue", f"#SBATCH --signal=TERM@{int(config.grace_s) + _MARGIN_S}"]
    lines += ["", *_setup(job), *_start(job, cpus)]
    if config.grace_s is not None:
        lines += _requeue(config.requeued_with)
    return "\n".join([*lines, "exit $code", ""])


def _sbatch(job: ClusterJob) -> list[str]:
    """The command; what the user adds overrides the script's directives."""
    return ["sbatch", "--parsable", "--export=ALL", *job.arguments]


def _log(job: ClusterJob) -> str:
    folder = os.path.join(job.directory, job.config.log_dir)
    return os.path.join(folder.replace("%", "%%"), "slurm-%j.out")


def _cpus(job: ClusterJob) -> str | None:
    """--cpus, else one per process of a node."""
    config = job.config
    if "cpus" in job.settings:
        return job.settings["cpus"]
    if config.nproc_per_node is not None:
        return str(config.nproc_per_node)
    if config.server_num is not None and config.worker_num is not None:
        return str(-(-(config.server_num + config.worker_num) // job.nodes))
    return None


def _setup(job: ClusterJob) -> list[str]:
    if not job.setup:
        return []
    return ["setup() {", *job.setup, "}", "export -f setup", ""]


def _start(job: ClusterJob, cpus: str | None) -> list[str]:
    """Run the launchers; `code` is then the exit code. `setup` runs here, for Python, and on every node."""
    log_dir = os.path.join(job.config.log_dir, "slurm-")  # several jobs may share the directory
    node_job = replace(job, config=replace(job.config, log_dir=type(job.config).log_dir))
    python, *module_and_words = node_job.node_command()
    launcher = [python, *module_and_words[:2]]
    options = f'--master="$master" --log_dir={shlex.quote(log_dir)}"$SLURM_JOB_ID"'
    rendezvous = shlex.join([python, "-m", "argosy.engine.cluster.slurm_rendezvous"])
    step = f"srun --kill-on-bad-exit=0 --wait={_LATE_NODE_S}" + (f" --cpus-per-task={cpus}" if cpus else "")
    before, inside = ("setup >&2 && ", """ bash -c 'setup && exec "$@"' setup""") if job.setup else ("", "")
    return [
        f"master=$({before}{rendezvous}) || exit",
        "trap : TERM  # Slurm may signal this shell, too: wait for srun",
        f"{step}{inside} \\",
        f"  {shlex.join(launcher)} {options} \\",
        f"  {shlex.join(module_and_words[2:])}",
        "code=$?",
    ]


def _requeue(code: int) -> list[str]:
    """Requeue the job after the requeue code, unless Slurm is doing so already, or the job was cancelled."""
    return [
        f'if [ $code = {code} ] && [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then',
        '  scontrol requeue "$SLURM_JOB_ID"',
        "fi",
    ]
