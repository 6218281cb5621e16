"""The commands of Slurm, and what `scontrol show job` reports; accounting (sacct) is not needed."""

# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from argosy.engine.errors import ConfigError

_FAILED = ("BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
_ENDED = ("COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED", *_FAILED)
_FIELD = re.compile(r"(?:^| )([\w:/]+)=(.*?)(?= [\w:/]+=|$)")
_UNHEALTHY = ("down", "drain", "drng", "fail", "unk", "*")  # `*`: the node does not respond


class Unreachable(ConfigError):
    """Slurm's controller does not respond; it may later."""


@dataclass(frozen=True)
class JobStatus:
    """A job as Slurm reports it."""

    state: str
    """PENDING, RUNNING, COMPLETING, FAILED, …"""
    reason: str
    nodelist: str
    """As `n[0-3]`; empty before the job has nodes."""
    restarts: int
    exit_code: int
    """That of the batch script."""
    exit_signal: int
    output: str
    """The path of the log."""
    array: str
    """The id of the array that the job belongs to, if any."""

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def code(self) -> int:
        """The exit code of fleetrun for an ended job; not 0 unless the job has completed."""
        if self.state == "COMPLETED":
            return 0
        return self.exit_code or (128 + self.exit_signal if self.exit_signal else 1)


def run(*command: str, text: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Run a command of Slurm; returns its output. Raises ConfigError with its message if it fails."""
    try:
        done = subprocess.run(
            command,
            input=text,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as e:
        raise ConfigError(
            f"{command[0]} was not found; run fleetrun on a host of the Slurm cluster, such as its login node"
        ) from e
    if done.returncode:
        message = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        kind = Unreachable if "contact slurm controller" in message else ConfigError
        raise kind(f"{command[0]} failed: {message}")
    return done.stdout


def statuses(job_id: str) -> list[JobStatus]:
    """The job; the jobs of an array."""
    if not re.fullmatch(r"\d+(_\d+)?", job_id):
        raise ConfigError(
            f"{job_id!r} is no job of Slurm; use a number as sbatch prints it, such as 12 or 12_3"
        )
    try:
        text = run("scontrol", "--oneliner", "show", "job", job_id)
    except Unreachable:
        raise
    except ConfigError as e:
        if "Invalid job id" not in str(e):
            raise
        raise ConfigError(
            f"Slurm knows no job {job_id}: there was none, or it has ended and Slurm has forgotten it (after "
            f"MinJobAge, mostly 5 minutes); its log is the file slurm-{job_id}.out in the log directory of the job"
        ) from e
    return [parse_status(line) for line in text.splitlines() if line.strip()]


def status(job_id: str) -> JobStatus:
    """The status of one job; raises ConfigError for an array."""
    listed = statuses(job_id)
    if listed[0].array == job_id:
        raise ConfigError(f"job {job_id} is an array of jobs; name one of them, such as {job_id}_0")
    return listed[0]


def parse_status(line: str) -> JobStatus:
    """The status in a line of `scontrol --oneliner show job`."""
    fields = _fields(line)
    code, _, number = fields.get("ExitCode", "0:0").partition(":")
    absent = ("", "(null)", "None")
    return JobStatus(
        state=fields["JobState"].split()[0],
        reason="" if fields.get("Reason", "") in absent else fields["Reason"],
        nodelist="" if fields.get("NodeList", "") in absent else fields["NodeList"],
        restarts=int(fields.get("Restarts", "0")),
        exit_code=int(code),
        exit_signal=int(number or 0),
        output=fields.get("StdOut", ""),
        array=fields.get("ArrayJobId", ""),
    )


def _fields(line: str) -> dict[str, str]:
    # Free text (the job's name) comes first: the last value of a field is Slurm's.
    return {match[1]: match[2] for match in _FIELD.finditer(line.strip())}


def hosts(nodelist: str) -> tuple[str, ...]:
    """The names in a list such as `n[0-3]`, in order."""
    return tuple(run("scontrol", "show", "hostnames", nodelist).split()) if nodelist else ()


def node_address(node: str) -> str:
    """The address by which Slurm reaches a node."""
    fields = _fields(run("scontrol", "--oneliner", "show", "node", node))
    return fields.get("NodeAddr", node)


def unhealthy_nodes(nodelist: str) -> list[str]:
    """The nodes of the list that Slurm does not consider available, each with its state and the reason."""
    if not nodelist:
        return []
    lines = run("sinfo", "--noheader", "--Node", f"--nodes={nodelist}", "--format=%N %T %E").splitlines()
    parts = [line.split(maxsplit=2) for line in lines]
    unhealthy = [f"{name} is {state} ({reason})" for name, state, reason in parts if _is_unhealthy(state)]
    return list(dict.fromkeys(unhealthy))  # a node is listed once per partition


def _is_unhealthy(state: str) -> bool:
    return any(word in state.lower() for word in _UNHEALTHY)
